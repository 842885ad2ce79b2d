package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// mixed makes the model of tinyRun a mixture of experts that two ranks share out, in two processes.
var mixed = []string{"model.name=qwen/3-30b-a3b", "model.overrides.num_experts=8",
	"model.overrides.num_experts_per_tok=2", "model.overrides.moe_intermediate_size=16", "plan.ep=2",
	"plan.pp=1",
	"plan.procs=2", "plan.zero=1"}

// TestExpertsMovedBetweenProcesses: with experts that move every second step, weights, optimizer state,
// ledger and metrics are those of a run whose experts stay, also where a process is killed and goes back to
// a copy in memory or to a checkpoint.
func TestExpertsMovedBetweenProcesses(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the worker needs /proc")
	}
	quiet := tinyRun(t)
	want := trainKilled(t, quiet, nil, mixed...)
	for buddy, from := range map[string]string{
		// of a checkpoint that is as new either may be read
		"1 checkpoint.interval=50": "copies in memory",
		"off":                      "(the checkpoint|what the run began with)"} {
		dir := tinyRun(t)
		got := trainKilled(t, dir, &strike{step: 30, sig: syscall.SIGKILL, victim: firstOf},
			slices.Concat(mixed, []string{"train.balance_every=2"}, strings.Fields("train.buddy="+buddy))...)
		require.Equal(t, 1, got.back, got.out)
		require.Regexp(t, "from "+from, got.out)
		require.Equal(t, want.state, got.state, got.out)
		require.Equal(t, losses(t, quiet), losses(t, dir), got.out)
		text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
		require.NoError(t, err)
		require.Greater(t, bytes.Count(text, []byte(`"moved":[{"block":`)), 5)
	}
}

// TestCopiesBetweenProcesses: with copies of busy experts too a run whose process is killed, and that goes on
// from copies in memory or from a checkpoint, ends with the weights, state and losses of one that is left alone,
// since it knows where experts lay and what the next move goes by; a run without copies goes on from its checkpoint.
func TestCopiesBetweenProcesses(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the worker needs /proc")
	}
	more := append(mixed, "train.balance_every=3", "plan.redundant_experts=2")
	quiet := tinyRun(t)
	want := trainKilled(t, quiet, nil, more...)
	var dir string
	for buddy, from := range map[string]string{
		// of a checkpoint that is as new either may be read
		"1 checkpoint.interval=50": "copies in memory",
		"off":                      "(the checkpoint|what the run began with)"} {
		dir = tinyRun(t)
		got := trainKilled(t, dir, &strike{step: 30, sig: syscall.SIGKILL, victim: firstOf},
			slices.Concat(more, strings.Fields("train.buddy="+buddy))...)
		require.Equal(t, 1, got.back, got.out)
		require.Regexp(t, "from "+from, got.out)
		require.Equal(t, want.state, got.state, got.out)
		require.Equal(t, losses(t, quiet), losses(t, dir), got.out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "run", "metrics.jsonl"))
	require.NoError(t, err)
	socks, err := filepath.Glob(filepath.Join(dir, "run", "why-*.sock"))
	require.NoError(t, err)
	require.Empty(t, socks, "of processes that have ended, one of them by a kill")
	require.Regexp(t, `"experts_by_place":\[(\d,){9}\d\]`, string(text))
	// and one without copies goes on from it, on one rank
	code, out := runIn(t, dir, nil, append(append([]string{"train", "run.yaml"}, mixed...), "plan.ep=1",
		"plan.procs=1", "plan.dp=1", "train.steps=64")...)
	require.Equal(t, 0, code, out)
}

// TestMovesRefused: what cannot move is one error with a remedy.
func TestMovesRefused(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	for want, args := range map[string][]string{
		"train.balance_every: the model has no experts; remove it":  nil,
		"plan.ep = 1 every rank has all experts, and none can move": append(mixed, "plan.ep=1"),
		"plan.ep = 2 ranks cannot be spread evenly over 3 hosts": append(mixed,
			"train.balance_hosts=3"),
		"experts do not move with train.balance_every = 0; remove it, or ": append(mixed,
			"train.balance_every=0", "train.balance_hosts=2"),
		"only known where experts move; set train.balance_every, or ": append(mixed,
			"train.balance_every=0", "plan.redundant_experts=2"),
		"8 experts and 3 copies cannot be shared out evenly over 2 ranks": append(mixed,
			"plan.redundant_experts=3"),
		"would be one on each of its copies; remove it, or train.router.capacity": append(mixed,
			"plan.redundant_experts=2", "train.router.capacity=1.5"),
		"plan.redundant_experts: the model has no experts; remove it": {"plan.redundant_experts=2",
			"train.balance_every=0"},
		"optimizer state waits on the host stay where they are; remove it": append(mixed,
			"plan.offload_optimizer=true"),
	} {
		code, out := runIn(t, dir, nil, append([]string{"plan", "run.yaml", "train.balance_every=2"},
			args...)...)
		require.Equal(t, 2, code, out)
		require.Contains(t, out, want)
	}
}
