package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// kill is a moment of a run: so many microseconds into a job of a kind, in a step.
type kill struct {
	job    string
	step   int
	micros int
}

// kills spreads random moments over a run of 24 steps, saves at every second one.
func kills(n int, seed uint64) (out []kill) {
	r := rand.New(rand.NewPCG(seed, 2))
	for i := range n {
		k := kill{job: []string{"update", "write", "commit", "update", "backward", "snapshot"}[i%6],
			step: 3 + i*20/n, micros: r.IntN(800)}
		if k.job == "write" || k.job == "commit" || k.job == "snapshot" {
			k.step += k.step % 2 // a step that is saved
		}
		if k.job == "write" || k.job == "commit" {
			k.micros *= 4 // files take longer
		}
		out = append(out, k)
	}
	return out
}

// TestKillAndResume: killed with SIGKILL at random moments, among them in saves and in optimizer steps, and
// started again each time by the same command, a run ends with the same weights, optimizer state and ledger
// as one that was left alone.
func TestKillAndResume(t *testing.T) {
	t.Parallel()
	n := 5
	if *long {
		n = 20
	} else {
		t.Log("5 of 20 kills; all of them with -long")
	}
	want := tinyRun(t)
	code, out := runIn(t, want, nil, "train", "run.yaml", "-q")
	require.Zero(t, code, out)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(want)))
	for _, sub := range []string{"ckpt", "run"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, sub)))
	}
	died := 0
	for _, k := range kills(n, 1) {
		fault := fmt.Sprintf("%s=kill=%s@%d+%d", run.EnvFault, k.job, k.step, k.micros)
		code, out := runIn(t, dir, []string{fault}, "train", "run.yaml", "-q")
		t.Logf("%s at step %d after %d µs: exit %d", k.job, k.step, k.micros, code)
		if code != 0 {
			require.Equal(t, -1, code, out)
			died++
		}
	}
	require.GreaterOrEqual(t, died, n*3/4)
	code, out = runIn(t, dir, nil, "train", "run.yaml", "-q")
	require.Zero(t, code, out)
	require.Equal(t, stateOf(t, want, 24), stateOf(t, dir, 24))
}

// TestResumeElsewhere: stopped in the middle and resumed on another plan, a run sees exactly the same
// samples, and its losses agree within 1e-4 relative: other orders of float32 sums over 12 steps.
func TestResumeElsewhere(t *testing.T) {
	t.Parallel()
	want := tinyRun(t)
	code, out := runIn(t, want, nil, "train", "run.yaml", "-q")
	require.Zero(t, code, out)
	args := func(plan string) []string {
		out := []string{"train", "run.yaml", "-q"}
		for _, s := range strings.Fields(plan) {
			out = append(out, "plan."+s)
		}
		return out
	}
	// The 401 rows of the vocabulary divide neither by 2 nor by 4: the last ranks' padding must not reach a checkpoint.
	for _, plans := range clitest.Sample(t, 3, [][2]string{
		{"pp=1 dp=2 tp=2 zero=1", "pp=4 dp=1 tp=1 schedule=gpipe"},
		// in the middle of documents longer than a sequence: other ranks share the tokens, or chunks cut them
		{"pp=2 dp=1 tp=1 cp=2", "pp=1 dp=1 tp=1 cp=2 cp_comm=ring schedule=chunkpipe chunk_size=16"},
		{"pp=1 dp=4 tp=1 zero=3 zero_ranks=2", "pp=1 dp=4 tp=1 zero=1 zero_ranks=2"},
		{"", "pp=1 dp=1 tp=2"},
		{"zero=1", "pp=1 dp=4 tp=1 zero=3"},
		{"pp=1 dp=1 tp=4", "pp=1 dp=2 tp=2 zero=2"},
		{"pp=1 dp=1 tp=1 cp=2 cp_comm=ring zero=1", "pp=1 dp=1 tp=1 cp=4 cp_comm=hybrid ulysses=2 zero=2"},
	}) {
		before, plan := plans[0], plans[1]
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(want)))
		for _, sub := range []string{"ckpt", "run"} {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, sub)))
		}
		code, out := runIn(t, dir, []string{run.EnvFault + "=kill=update@13+0"}, args(before)...)
		require.Equal(t, -1, code, out)
		code, out = runIn(t, dir, nil, args(plan)...)
		require.Zero(t, code, out)
		require.Equal(t, stateOf(t, want, 24).Ledger, stateOf(t, dir, 24).Ledger, plan)
		a, b := metrics(t, want), metrics(t, dir)
		require.Len(t, b, 24)
		for i := range a {
			require.InEpsilon(t, a[i].Loss, b[i].Loss, 1e-4, "%s, then %s: step %d", before, plan, i+1)
		}
	}
}

// TestLatestGone: without the file latest a run goes on from the newest whole checkpoint and says so; it
// never starts afresh over checkpoints that are there.
func TestLatestGone(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=4", "schedule.decay_steps=9")
	require.Zero(t, code, out)
	require.NoError(t, os.Remove(filepath.Join(dir, "ckpt", "latest")))
	code, out = runIn(t, dir, nil, "train", "run.yaml", "train.steps=6", "schedule.decay_steps=9")
	require.Zero(t, code, out)
	require.Contains(t, out, "going on from")
	require.Contains(t, out, "step 5/6")
	require.NotContains(t, out, "step 1/6")
}

// TestOwnStateWhole: checkpoint.load_optimizer and load_rng are about checkpoint.load. A run with both off
// goes on from its own checkpoint with its moments, to the state of a run that was left alone, and says so.
func TestOwnStateWhole(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	train := func(steps string) string {
		code, out := runIn(t, dir, nil, "train", "run.yaml", "train.steps="+steps, "schedule.decay_steps=9",
			"checkpoint.load_rng=false", "checkpoint.load_optimizer=false")
		require.Zero(t, code, out)
		return out
	}
	train("6")
	alone := stateOf(t, dir, 6)
	for _, sub := range []string{"ckpt", "run"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, sub)))
	}
	train("4")
	require.Contains(t, train("6"), "verified, whole: load_optimizer and load_rng are for checkpoint.load")
	require.Equal(t, alone, stateOf(t, dir, 6))
}
