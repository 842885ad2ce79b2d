package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/host"
)

// TestEdges: a run's edges are listed while it is under way and when it has ended, over all of its processes;
// one that is captured is read by a stock reader, message for message; patterns that match nothing are refused.
func TestEdges(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	list := func() map[string]host.Edge {
		code, out, errs := streams(t, dir, "", "edges", "run", "-o", "json")
		require.Zero(t, code, errs)
		var all []host.Edge
		require.NoError(t, json.Unmarshal([]byte(out), &all), out)
		by := map[string]host.Edge{}
		for _, e := range all {
			by[e.Name] = e
		}
		require.Len(t, by, len(all), "one line an edge")
		return by
	}
	code, out := runIn(t, dir, nil, "edges", "run")
	require.Equal(t, 6, code, out)
	for _, c := range [][]string{{"--capture", "rank7-*"}, {"--capture=["}, {"--capture"}, {"--capture="}} {
		code, out := runIn(t, dir, nil, append([]string{"train", "run.yaml"}, c...)...)
		require.Equal(t, 2, code, "%v: %s", c, out)
	}

	code, out = runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=4", "plan.procs=2", "--capture",
		"rank0-rank2=kept")
	require.Zero(t, code, out)
	edges := list()
	between := edges["rank0-rank2"]
	require.Equal(t, "unix socket to process 1", between.Way)
	require.Contains(t, between.Kinds, "activation")
	require.Equal(t, "inside", edges["rank0-rank1"].Way)
	require.Equal(t, 1, edges["rank2-rank0"].Proc)
	files, err := filepath.Glob(filepath.Join(dir, "kept", "*"))
	require.NoError(t, err)
	rows := int64(0)
	for _, name := range files {
		require.Regexp(t, `rank0-rank2-\d+\.arrows$`, name)
		f, err := os.Open(name)
		require.NoError(t, err)
		r, err := ipc.NewReader(f)
		require.NoError(t, err)
		for r.Next() {
			rows += r.Record().NumRows()
		}
		require.NoError(t, r.Err())
		r.Release()
		require.NoError(t, f.Close())
	}
	require.Equal(t, between.Messages, rows)

	c := exec.Command(built(t), "train", "run.yaml", "-q", "train.steps=100000", "checkpoint.dir=other")
	c.Dir = dir
	require.NoError(t, c.Start())
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	require.Eventually(t, func() bool {
		_, out, _ := streams(t, dir, "", "edges", "run", "-o", "json")
		var all []host.Edge
		if json.Unmarshal([]byte(out), &all) != nil || len(all) == 0 {
			return false
		}
		return all[0].Messages > 100 && all[0].Name == "coordinator-observer"
	}, 2*time.Minute, 50*time.Millisecond, "it is under way")
}
