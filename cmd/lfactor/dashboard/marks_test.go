package dashboard

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// TestMarks: an admin names, tags and archives a run and deletes its records; a viewer may not, and what is too long is
// refused.
func TestMarks(t *testing.T) {
	dir := t.TempDir()
	b, err := json.Marshal(run.Record{ID: "1", Name: "x", Status: run.Finished})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, run.RecordName), b, 0o600))
	s := New(8265, Options{Dirs: []string{dir}, Stop: func(string) error { return nil }})
	post := func(role Role, to, body string) (int, string) {
		r := call(s, "POST", "/api/runs/0/"+to, enter(t, s, role), func(r *http.Request) {
			r.Header.Set("Origin", "http://"+at)
			r.Body = io.NopCloser(strings.NewReader(body))
		})
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		return r.StatusCode, string(text)
	}
	code, _ := post(Viewer, "marks", `{"name":"a"}`)
	require.Equal(t, 403, code)
	code, _ = post(Viewer, "delete", "{}")
	require.Equal(t, 403, code)
	code, text := post(Admin, "marks", `{"name":"a","tags":["z","b","z"],"note":"n","archived":true}`)
	require.Equal(t, 200, code, text)
	of := get[struct{ Runs []summary }](t, s, enter(t, s, Viewer), "/api/runs")
	require.Equal(t, run.Marks{Name: "a", Tags: []string{"b", "z"}, Note: "n", Archived: true}, of.Runs[0].Marks)
	code, text = post(Admin, "marks", `{"name":"`+strings.Repeat("x", 101)+`"}`)
	require.Equal(t, 422, code, text)
	code, text = post(Admin, "delete", "{}")
	require.Equal(t, 200, code, text)
	require.NoFileExists(t, filepath.Join(dir, run.RecordName))
	code, _ = post(Admin, "delete", "{}")
	require.Equal(t, 422, code, "it is gone already")
}
