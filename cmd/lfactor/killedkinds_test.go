package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// killedKinds are runs that TestWorkerKilledKinds takes; only the first two without -long.
var killedKinds = []struct {
	name string
	make func(t *testing.T) string
	args string
}{
	{"diffusion", diffusionRun, "plan.pp=2"},
	{"pairs of answers", pairsRun, "plan.pp=2"},
	{"experts", tinyRun, strings.ReplaceAll(ofExperts, "plan.pp=1", "plan.pp=2")},
	{"adapters", tinyRun, "lora.rank=4"},
	{"Muon", tinyRun, "optimizer.kind=muon"},
	{"few bits of moments", tinyRun, "optimizer.moments=8bit"},
	{"halves", tinyRun, "train.precision=fp16"},
}

// TestWorkerKilledKinds: runs of other kinds than texts in float32 also go on from copies in memory when a process of
// theirs is killed, with the weights, optimizer state and ledger of one that nobody disturbed.
func TestWorkerKilledKinds(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("finding the worker needs /proc")
	}
	kinds := killedKinds
	if !*long {
		kinds = kinds[:2]
		t.Log("2 kinds instead of 7: add -long")
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			args := append([]string{"plan.procs=2", "train.buddy=1", "checkpoint.interval=50"}, strings.Fields(k.args)...)
			quiet, dir := k.make(t), k.make(t)
			want := trainKilled(t, quiet, nil, args...)
			got := trainKilled(t, dir, &strike{step: 20, sig: syscall.SIGKILL, victim: firstOf}, args...)
			require.Equal(t, want.state, got.state, got.out)
			require.Equal(t, losses(t, quiet), losses(t, dir), got.out)
			require.Equal(t, 1, got.back, got.out)
			require.Contains(t, got.out, "from copies in memory")
		})
	}
}
