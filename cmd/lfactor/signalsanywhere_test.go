package main

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestSignalsAnywhere: SIGTERM at any moment of a run, while it starts, resumes, trains, evaluates or saves,
// ends it with exit code 0 within ten seconds, and what was durable stays whole; the next run goes on from there.
func TestSignalsAnywhere(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("-long sends SIGTERM at 20 random moments of runs that resume each other")
	}
	dir, rng, last := tinyRun(t), rand.New(rand.NewPCG(1, 17)), int64(0)
	for i := range 20 {
		c := exec.Command(built(t), "train", "run.yaml", "train.steps=100000", "checkpoint.interval=20",
			"train.eval_interval=10", "schedule.decay_steps=100")
		var out bytes.Buffer
		c.Dir, c.Stderr, c.Stdout = dir, &out, &out
		require.NoError(t, c.Start())
		after := 100*time.Millisecond + time.Duration(rng.Int64N(int64(2500*time.Millisecond)))
		<-time.After(after)
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		asked := time.Now()
		require.NoError(t, c.Wait(), "%d, after %v: %s", i, after, out.String())
		took := time.Since(asked)
		require.Less(t, took, 10*time.Second, out.String())
		step := last
		if r, err := checkpoint.Open(filepath.Join(dir, "ckpt")); err == nil {
			require.NoError(t, r.Verify())
			step = r.Step()
			r.Close()
		}
		t.Logf("%2d: after %5.2f s, ended within %5.0f ms, durable step %d", i, after.Seconds(),
			took.Seconds()*1e3, step)
		require.GreaterOrEqual(t, step, last)
		last = step
	}
	require.Positive(t, last)
}
