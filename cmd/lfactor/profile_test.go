package main

import (
	"encoding/json"
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/profiler"
	"github.com/lfactor/lfactor/kernels/profile"
)

// wellFormed parses XML and counts its elements by name.
func wellFormed(t *testing.T, text string) map[string]int {
	t.Helper()
	n := map[string]int{}
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		tok, err := d.Token()
		if err == io.EOF {
			return n
		}
		require.NoError(t, err)
		if e, ok := tok.(xml.StartElement); ok {
			n[e.Name.Local]++
		}
	}
}

// TestTrainProfile: the flag leaves three files in the run's directory or where it says, and training is as without it.
func TestTrainProfile(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	args := []string{"train", "run.yaml", "-q", "train.steps=5", "checkpoint.interval=0"}
	code, out := runIn(t, dir, nil, append(args, "--profile")...)
	require.Zero(t, code, out)
	with := metrics(t, dir)
	text, err := os.ReadFile(filepath.Join(dir, "run", "profile.json"))
	require.NoError(t, err)
	var r profile.Report
	require.NoError(t, json.Unmarshal(text, &r))
	require.Equal(t, 4, r.Steps)
	require.Len(t, r.Lanes, 4)
	var m profiler.ProfileReport
	require.NoError(t, json.Unmarshal(text, &m))
	require.Len(t, m.Memory, 4)
	for _, l := range m.Memory {
		require.Greater(t, l.Peak, int64(100<<10), l.Rank)
	}
	drawing, err := os.ReadFile(filepath.Join(dir, "run", "profile.svg"))
	require.NoError(t, err)
	require.Greater(t, wellFormed(t, string(drawing))["rect"], 20)
	table, err := os.ReadFile(filepath.Join(dir, "run", "profile.txt"))
	require.NoError(t, err)
	for _, want := range []string{"peaks: ", "waiting for ranks", "attention_bwd", "outside kernels",
		"memory at its peak", "exp_avg of model.embed_tokens.weight"} {
		require.Contains(t, string(table), want)
	}

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	code, out = runIn(t, dir, nil, append(args, "--profile=here/p", "plan.procs=2")...)
	require.Zero(t, code, out)
	for i, m := range metrics(t, dir) {
		require.Equal(t, with[i].Loss, m.Loss, "step %d", i+1)
	}
	table, err = os.ReadFile(filepath.Join(dir, "run", "here", "p.txt"))
	require.NoError(t, err)
	require.Contains(t, string(table), "messages, other processes")

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
	code, out = runIn(t, dir, nil, "train", "run.yaml", "train.steps=1", "checkpoint.interval=0",
		"--profile=none")
	require.Zero(t, code, out)
	require.Contains(t, out, "no profile: it wants two steps")
	require.NoFileExists(t, filepath.Join(dir, "run", "none.txt"))
}
