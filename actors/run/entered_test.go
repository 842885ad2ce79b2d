package run

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestSavedStepsAreEntered: a step that a checkpoint makes durable is in the ledger before, however slow the
// observer is that enters it: a run that is killed in between goes on behind that step and enters it no more.
func TestSavedStepsAreEntered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	log, ckpt := filepath.Join(t.TempDir(), "log"), filepath.Join(t.TempDir(), "ckpt")
	cfg, err := configs.Load(configs.Request{Args: []string{"model.file=" + filepath.Join(dir, "model.yaml"),
		"data.paths=[" + filepath.Join(dir, "pairs.jsonl") + "]", "data.tokenizer=" + dir, "data.seq_len=48",
		"data.split=[1,0,0]", "objective.kind=dpo", "train.steps=8", "train.global_batch=4",
		"train.micro_batch=1", "schedule.warmup_steps=0", "checkpoint.dir=" + ckpt, "checkpoint.interval=2",
		"log.dir=" + log}})
	require.NoError(t, err)
	stop, seen, behind := make(chan struct{}), make(chan int, 1), make(chan string, 100)
	go func() { // looks as one would who ended the run at any moment
		n, last := 0, ""
		for {
			if name, err := checkpoint.Latest(ckpt); err == nil && name != last {
				n, last = n+1, name
				step, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(name), "step-"), 10, 64)
				l, fault := dataset.ReadLedger(filepath.Join(log, LedgerName))
				if err != nil || fault != nil {
					behind <- name
					seen <- n
					return
				}
				if at, ok := l.Last(); !ok || at < step {
					behind <- name
				}
				_ = l.Close() // read only
			}
			select {
			case <-stop:
				seen <- n
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	err = Train(context.Background(), cfg, Options{Report: func(m actors.Message) {
		if m.Text == core.TopicStep {
			<-time.After(60 * time.Millisecond)
		}
	}})
	close(stop)
	require.NoError(t, err)
	require.GreaterOrEqual(t, <-seen, 2)
	require.Empty(t, behind, "a checkpoint is durable whose step the ledger lacks")
}
