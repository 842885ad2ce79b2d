package run

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestBest: the checkpoint of the lowest evaluation stays beside the newest one and is exported, also where the run was
// stopped and went on in between. Pairs that are held out the other way round get worse with each step, so that the
// lowest is the first, which nothing keeps from being saved. Held-out pairs under a rate that throws the weights about
// have it anywhere: which of those steps are saved depends on how long the saves before them take, and the lowest of the
// saved ones can be the last.
func TestBest(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	pairs, err := os.ReadFile(writePairs(t, data, false))
	require.NoError(t, err)
	turned := filepath.Join(data, "turned.jsonl")
	swap := strings.NewReplacer(`"chosen"`, `"rejected"`, `"rejected"`, `"chosen"`)
	require.NoError(t, os.WriteFile(turned, []byte(swap.Replace(string(pairs))), 0o644))
	split := []string{"data.split=[60,40,0]", "optimizer.lr=0.5"}
	worse := []string{"data.valid=[" + turned + "]", "optimizer.lr=0.01"}
	for _, c := range []struct {
		stops int64
		more  []string
		first bool
	}{{0, worse, true}, {7, worse, true}, {0, split, false}, {7, split, false}} {
		dir := t.TempDir()
		load := func(more ...string) (*configs.Config, error) {
			return configs.Load(configs.Request{Args: append([]string{"model.file=" + filepath.Join(data, "model.yaml"),
				"data.paths=[" + filepath.Join(data, "pairs.jsonl") + "]", "data.tokenizer=" + data, "data.seq_len=48",
				"objective.kind=dpo", "train.global_batch=2", "train.micro_batch=1", "train.steps=14",
				"schedule.kind=constant", "train.eval_interval=1", "train.eval_steps=3", "checkpoint.keep=1",
				"checkpoint.interval=1", "checkpoint.save_hf=true", "checkpoint.best=true",
				"checkpoint.dir=" + filepath.Join(dir, "saved"),
				"log.dir=" + filepath.Join(dir, "log")}, append(c.more, more...)...)})
		}
		var said strings.Builder
		for _, stop := range []int64{c.stops, 0} {
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
		if c.first {
			require.EqualValues(t, 1, best)
		}
		all, err := checkpoint.List(filepath.Join(dir, "saved"))
		require.NoError(t, err)
		want, kept := []int64{14, best}, []int64{}
		if best == 14 {
			want = want[:1]
		}
		for _, saved := range all {
			kept = append(kept, saved.Step)
		}
		require.Equal(t, want, kept)
		require.Equal(t, best < 14, strings.Contains(said.String(),
			fmt.Sprintf("best    step %d, whose evaluation's loss is %.4f, is exported", best, lowest)))
		require.Equal(t, least < lowest, strings.Contains(said.String(), "a save was under way, so that it was put off"))
		require.DirExists(t, filepath.Join(dir, "saved", "release_hf_weights"))
		removesBest(t, load, filepath.Join(dir, "saved"), best)
		for _, bad := range []string{"train.eval_interval=0", "train.eval_interval=2", "checkpoint.interval=0"} {
			_, err := load(bad)
			require.ErrorContains(t, err, "checkpoint.best", bad)
		}
	}
}

// removesBest: a step with the lowest loss whose checkpoint somebody removed is named at the end.
func removesBest(t *testing.T, load func(more ...string) (*configs.Config, error), saved string, best int64) {
	t.Helper()
	if best == 14 { // the newest checkpoint
		return
	}
	require.NoError(t, os.RemoveAll(checkpoint.StepDir(saved, best)))
	cfg, err := load("train.steps=15")
	require.NoError(t, err)
	var said strings.Builder
	require.NoError(t, Train(context.Background(), cfg, Options{Progress: &said}))
	require.Contains(t, said.String(), "had the lowest loss, ")
	require.Contains(t, said.String(), "or somebody removed it")
}
