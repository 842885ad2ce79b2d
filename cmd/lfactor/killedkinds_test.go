package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// killedKind is a kind of run that is struck.
type killedKind struct {
	name string
	make func(t *testing.T) string
	args string
}

// killedKinds are runs that TestWorkerKilledKinds takes; only the first two without -long.
var killedKinds = []killedKind{
	{"diffusion", diffusionRun, "plan.pp=2"},
	{"pairs of answers", pairsRun, "plan.pp=2"},
	{"a robot's policy", policyRun, "plan.pp=1 plan.dp=2 plan.zero=1"},
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
		t.Logf("2 kinds instead of %d: add -long", len(killedKinds))
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

// policyRun is a run of the policy that the demo of a robot trains, on that demo's recordings.
func policyRun(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	code, out := runIn(t, dir, nil, "demo", "--robot", "--steps", "2", "--dir", ".")
	require.Zero(t, code, out)
	for _, name := range []string{"run", "checkpoints"} {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, name)))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(`
model: {file: model.yaml}
data: {paths: [recordings], tokenizer: tokenizer, seq_len: 8, split: [1, 0, 0]}
train: {global_batch: 8, micro_batch: 4, seed: 5}
optimizer: {lr: 1.0e-3}
checkpoint: {dir: ckpt}
log: {dir: run}
`), 0o600))
	return dir
}

// grownRun is a run of texts on data that is followed, all of which has come.
func grownRun(t *testing.T) string {
	t.Helper()
	dir := tinyRun(t)
	for k := range 40 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.jsonl", k)), []byte(shardText(k)), 0o600))
	}
	code, out := runIn(t, dir, nil, "data", "ingest", "--follow", "*.jsonl", "--to", "stream", "--settle", "1ms", "--idle", "200ms")
	require.Zero(t, code, out)
	return dir
}

// TestClusterKilledKinds: in a cluster, runs of every kind go on when a process is killed, then the one that leads, and
// then the head with another: weights, optimizer state, ledger and losses are those of one that nobody disturbed.
func TestClusterKilledKinds(t *testing.T) {
	if !*long {
		t.Skip("left out without -long: each kind of run in a cluster, with four kills; TestWorkerKilledKinds has one kill of two")
	}
	kinds := append(slices.Clone(killedKinds), killedKind{"data that grows", grownRun,
		"data.kind=auto data.paths=[stream/manifest.jsonl] data.follow=true data.split=[100,0,0]"})
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			args := append([]string{"train", "run.yaml", fmt.Sprint("train.steps=", struckSteps), "plan.procs=2", "train.buddy=1",
				"checkpoint.interval=25"}, strings.Fields(k.args)...)
			quiet := k.make(t)
			dir := t.TempDir()
			require.NoError(t, os.CopyFS(dir, os.DirFS(quiet)))
			code, out := runIn(t, quiet, nil, append(args, "-q")...)
			require.Zero(t, code, out)
			said := struckInCluster(t, dir, args)
			require.Equal(t, losses(t, quiet), losses(t, dir), said)
			require.Equal(t, stateOf(t, quiet, struckSteps), stateOf(t, dir, struckSteps), said)
		})
	}
}

// struckInCluster trains on a cluster of three local agents while processes are killed, and returns what it writes.
func struckInCluster(t *testing.T, dir string, args []string) string {
	t.Helper()
	env := []string{"LFACTOR_HOME=" + filepath.Join(dir, "home")}
	code, out := runIn(t, dir, env, "cluster", "up", "--local", "3", "--name", "test")
	t.Cleanup(func() { _, _ = runIn(t, dir, env, "cluster", "down", "test") }) // a second time where the test has ended well
	require.Zero(t, code, out)
	c := exec.Command(clitest.BuiltHead(t), append(args, "--cluster", "test")...)
	var said bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = dir, &said, &said
	c.Env = slices.Concat(os.Environ(), env, clitest.Gated(t, dir, 15))
	require.NoError(t, c.Start())
	for i, victims := range [][]int{{1}, {0}, {-1, 1}} { // -1 is the head
		require.Eventually(t, func() bool { return clitest.Steps(t, dir) >= 15*(i+1) }, 4*time.Minute, time.Millisecond,
			"no step %d: %s", 15*(i+1), &said)
		var s head.Status
		code, out, errs := clitest.StreamsEnv(t, dir, env, "cluster", "status", "-o", "json")
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		for _, n := range victims {
			pid := s.Pid
			if n >= 0 {
				pid = s.Jobs[0].Procs[n].Pid
			}
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		clitest.Gate(t, dir, 15*(i+2))
	}
	clitest.Gate(t, dir, clitest.Open)
	require.NoError(t, c.Wait(), said.String())
	require.Contains(t, said.String(), "recovered after")
	code, out = runIn(t, dir, env, "cluster", "down", "test")
	require.Zero(t, code, out)
	return said.String()
}
