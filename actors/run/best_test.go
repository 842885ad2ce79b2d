package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestBest: the checkpoint of the lowest evaluation stays beside the newest one and is exported, in a run that gets worse
// after it, and also where it was stopped and went on in between.
func TestBest(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	writePairs(t, data, false)
	for _, stops := range []int64{0, 7} {
		dir := t.TempDir()
		load := func(more ...string) (*configs.Config, error) {
			return configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(data, "model.yaml"),
				"data.paths=[" + filepath.Join(data, "pairs.jsonl") + "]", "data.tokenizer=" + data, "data.seq_len=48",
				"data.split=[60,40,0]", "objective.kind=dpo", "train.global_batch=2", "train.micro_batch=1", "train.steps=14",
				"optimizer.lr=0.5", "schedule.kind=constant", "train.eval_interval=1", "train.eval_steps=3", "checkpoint.keep=1",
				"checkpoint.interval=1", "checkpoint.save_hf=true", "checkpoint.best=true", "checkpoint.dir=" + filepath.Join(dir, "saved"),
				"log.dir=" + filepath.Join(dir, "log")}, more...)})
		}
		var said strings.Builder
		for _, stop := range []int64{stops, 0} {
			cfg, err := load()
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			err = Train(ctx, cfg, Options{Progress: &said, Step: func(m Metrics) {
				if m.Step == stop {
					cancel()
				}
			}})
			require.True(t, err == nil || errors.Is(err, ErrStopped), "%v", err)
			cancel()
		}
		best, lowest, least := int64(0), 0.0, math.Inf(1)
		for _, e := range evaluations(filepath.Join(dir, "log", "log.jsonl"), 100) {
			saved := strings.Contains(said.String(), fmt.Sprintf("saved step %.0f:", e.X))
			if saved && (best == 0 || e.Y < lowest) {
				best, lowest = int64(e.X), e.Y
			}
			least = min(least, e.Y)
		}
		require.Less(t, best, int64(14), "a rate of 0.5 makes it worse again")
		all, err := checkpoint.List(filepath.Join(dir, "saved"))
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, []int64{14, best}, []int64{all[0].Step, all[1].Step})
		require.Contains(t, said.String(), fmt.Sprintf("best    step %d, whose evaluation's loss is %.4f, is exported", best, lowest))
		require.Equal(t, least < lowest, strings.Contains(said.String(), "was not saved, since a save was under way"))
		require.DirExists(t, filepath.Join(dir, "saved", "release_hf_weights"))
		for _, bad := range []string{"train.eval_interval=0", "train.eval_interval=2", "checkpoint.interval=0"} {
			_, err := load(bad)
			require.ErrorContains(t, err, "checkpoint.best", bad)
		}
	}
}
