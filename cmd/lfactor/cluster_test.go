package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/cluster/rig"
	"github.com/lfactor/lfactor/actors/run"
)

// clusterHome gives a test a home for clusters of its own, and takes down what it leaves there.
func clusterHome(t *testing.T, dir string, names ...string) []string {
	t.Helper()
	env := []string{"LFACTOR_HOME=" + filepath.Join(dir, "home")}
	t.Cleanup(func() {
		for _, n := range names {
			if t.Failed() {
				logs, _ := filepath.Glob(filepath.Join(dir, "home", "clusters", n, "*", "log"))
				more, _ := filepath.Glob(filepath.Join(dir, "home", "clusters", n, "agents", "*", "log"))
				for _, f := range append(logs, more...) {
					text, _ := os.ReadFile(f)
					t.Logf("%s:\n%s", f, text)
				}
			}
			_, _ = runIn(t, dir, env, "cluster", "down", n)
		}
	})
	return env
}

// leftovers lists the processes whose command line names a directory.
func leftovers(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	for _, f := range all {
		text, err := os.ReadFile(f)
		// one that nobody has reaped has no command line
		if err == nil && bytes.Contains(text, []byte(dir)) {
			out = append(out, f+" "+strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return out
}

// TestClusterSame: a run on a cluster of local agents has the losses of a run without one, to the last
// bit; its output comes to the terminal, its exit code is the command's; and nothing of the cluster is
// left after down.
func TestClusterSame(t *testing.T) {
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=8")
	require.Zero(t, code, out)
	alone := metrics(t, dir)
	require.Len(t, alone, 8)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	env := clusterHome(t, dir, "test")
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Zero(t, code, out)
	code, out = runIn(t, dir, env, "cluster", "up", "--local", "2", "--name", "test")
	require.Equal(t, 5, code, "a second cluster of one name: %s", out)
	code, out = runIn(t, dir, env, "train", "run.yaml", "--cluster", "test", "train.steps=8")
	require.Zero(t, code, out)
	require.Contains(t, out, "step 8/8")
	same(t, alone, metrics(t, dir))
	code, out = runIn(t, dir, env, "train", "run.yaml", "--cluster", "test", "train.steps=8",
		"data.paths=[nowhere]")
	require.Equal(t, 2, code, out)
	require.Contains(t, out, "nowhere")
	code, out = runIn(t, dir, env, "cluster", "status", "-o", "json")
	require.Zero(t, code, out)
	var now head.Status
	require.NoError(t, json.Unmarshal([]byte(out), &now), out)
	require.Len(t, now.Hosts, 2)
	require.Equal(t, "ready", now.Hosts[1].State)
	code, out = runIn(t, dir, env, "cluster", "down")
	require.Zero(t, code, out)
	require.Empty(t, leftovers(t, filepath.Join(dir, "home")))
	left, err := os.ReadDir(filepath.Join(dir, "home", "clusters"))
	require.NoError(t, err)
	require.Empty(t, left)
	code, out = runIn(t, dir, env, "cluster", "status")
	require.Equal(t, 5, code, out)
}

func same(t *testing.T, want, got []run.Metrics) {
	t.Helper()
	require.Len(t, got, len(want))
	for i, a := range want {
		require.Equal(t, a.Loss, got[i].Loss, "step %d", i+1)
		require.Equal(t, a.GradNorm, got[i].GradNorm, "step %d", i+1)
	}
}

// TestClusterHosts: two hosts, joined by a token and edges of TLS, give the losses of one host to the
// last bit.
func TestClusterHosts(t *testing.T) {
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=6")
	require.Zero(t, code, out)
	alone := metrics(t, dir)
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	binary := filepath.Join(dir, "lfactor")
	text, err := os.ReadFile(built(t))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(binary, text, 0o755))
	r := rig.New(t, 2, dir)
	a, b := r.Hosts[0], r.Hosts[1]
	on := func(h *rig.Host, args ...string) string {
		c := h.In(dir, append([]string{binary}, args...)...)
		var errs bytes.Buffer
		c.Stderr = &errs
		out, err := c.Output()
		require.NoError(t, err, "%v: %s%s", args, out, errs.String())
		return string(out) + errs.String()
	}
	on(a, "cluster", "up", "--local", "1", "--name", "rig", "--addr", a.Addr)
	token := strings.TrimSpace(on(a, "cluster", "token"))
	join := b.Command(binary, "cluster", "join", "-")
	join.Stdin = strings.NewReader(token)
	var said bytes.Buffer
	join.Stderr = &said
	require.NoError(t, join.Start())
	t.Cleanup(func() {
		b.Kill()
		_ = join.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	require.Eventually(t, func() bool {
		return strings.Contains(on(a, "cluster", "status"),
			"│ h2   │ ready")
	}, 20*time.Second, 50*time.Millisecond)
	out = on(a, "train", "run.yaml", "--cluster", "rig", "train.steps=6")
	require.Contains(t, out, "step 6/6")
	same(t, alone, metrics(t, dir))
	again := b.Command(binary, "cluster", "join", token)
	text, err = again.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), "was used")
	require.Contains(t, on(a, "cluster", "down"), "nothing of it is left")
	require.NoError(t, join.Wait(), "the cluster's end is the agent's")
}
