package dashboard

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReplaced: a page that is open hears of a run that takes another's place in its folder: it is to ask anew, and hears
// the new one's events from then on, though the old one had more. A line of an older version, with columns that are gone
// and without those that came since, is read.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	lines := func(of string, n int) (out string) {
		for i := range n {
			out += fmt.Sprintf(`{"level": "info", "ts": 1, "msg": "%s says %d"}`+"\n", of, i)
		}
		return out
	}
	put("metrics.jsonl", `{"step": 1, "loss": 3, "gone": {"a": [1]}, "lr": 0.1}`+"\n")
	put("log.jsonl", lines("old", 9))
	f, c := newFolder(dir), cursor{}
	f.news(nil, 0, &c)
	put("log.jsonl", lines("new", 2)) // before its first step
	f.looked = f.looked.Add(-looksEvery * 2)
	require.Contains(t, string(f.news(nil, 0, &c)), "event: again")
	put("log.jsonl", lines("new", 3))
	f.looked = f.looked.Add(-looksEvery * 2)
	told := string(f.news(nil, 0, &c))
	require.Contains(t, told, "new says 2")
	require.NotContains(t, told, "old")
	require.Equal(t, 1, strings.Count(told, "says"), "what the page has asked for is not told again")
}
