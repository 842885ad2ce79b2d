package dashboard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/recipe"
)

// TestDataJob: the output folder of a recipe is listed as a data job, and its page has the counts of its report, or the
// blocks that were made while there is none; a folder of a run is none.
func TestDataJob(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	put("in.jsonl", strings.Repeat("{\"text\": \"one two three\"}\n", 3)+"{\"text\": \"four\"}\n{\"text\"\n")
	put("recipe.yaml", "output: "+dir+"/clean\ninputs:\n  - {name: all, path: "+dir+"/in.jsonl}\nsteps:\n  - {step: exact_dedup}\n"+
		"outputs:\n  - {format: jsonl}\n")
	r, err := recipe.Load(filepath.Join(dir, "recipe.yaml"))
	require.NoError(t, err)
	out := filepath.Join(dir, "clean")
	other := t.TempDir()
	s := New(8265, Options{Dirs: []string{out, other}})
	cookie := enter(t, s, Viewer)
	type list struct{ Runs []summary }
	require.False(t, get[list](t, s, cookie, "/api/runs").Runs[0].Data, "it has not begun")
	require.Equal(t, 422, call(s, "GET", "/api/runs/1/job", cookie, nil).StatusCode)

	want, err := recipe.Run(t.Context(), r, nil, dataset.Remote{})
	require.NoError(t, err)
	l := get[list](t, s, cookie, "/api/runs")
	require.True(t, l.Runs[0].Data)
	require.Equal(t, "finished", l.Runs[0].State)
	require.False(t, l.Runs[1].Data)
	got := get[recipe.Standing](t, s, cookie, "/api/runs/0/job")
	require.True(t, got.Done)
	a, err := json.Marshal(want)
	require.NoError(t, err)
	b, err := json.Marshal(got.Report)
	require.NoError(t, err)
	require.JSONEq(t, string(a), string(b))

	require.NoError(t, os.WriteFile(filepath.Join(out, ".recipe.json"), []byte(`{"version": 1}`), 0o644))
	require.NoError(t, os.MkdirAll(filepath.Join(out, ".work", "stage-00", "000"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(out, ".work", "stage-00", "000", "000000.block"), nil, 0o644))
	require.Equal(t, "under way, or cut off", get[list](t, s, cookie, "/api/runs").Runs[0].State)
	require.Equal(t, []int{1}, get[recipe.Standing](t, s, cookie, "/api/runs/0/job").Blocks)
}
