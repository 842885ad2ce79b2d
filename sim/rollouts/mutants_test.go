package rollouts

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutant is a fault planted in package rounds, with the promise whose breach tells of it.
type mutant struct{ name, promise, file, old, new string }

var mutants = []mutant{
	{"a round begins a publication before its credit", "R-1|R-4", "schedule.go",
		"return max(0, round-s.Staleness)",
		"return max(0, round-s.Staleness-1)"},
	{"a lost task is forgotten", "nothing happens", "desk.go",
		"	d.waiting = append(slices.Clone(s.tasks), d.waiting...)\n", ""},
	{"what a lost sampler says counts", "R-|panic: rounds:", "desk.go", "	delete(d.seats, sampler)\n", ""},
	{"a result that comes twice counts twice", "R-|panic: rounds:", "desk.go",
		"	if i < 0 {\n		return false, nil\n	}\n	s.tasks = slices.Delete(s.tasks, i, i+1)\n",
		"	if i >= 0 {\n		s.tasks = slices.Delete(s.tasks, i, i+1)\n	}\n"},
	{"a part does not wait for the one before it", "R-3", "desk.go", "		if !d.ready(t) {",
		"		if false {"},
	{"a round is trained on before its last answer", "R-2|panic: rounds:", "desk.go",
		"return begun && n == 0",
		"return begun && n <= 1"},
	{"weights change under an answer", "R-3|weights", "desk.go",
		"s.loaded != t.Publication && len(s.tasks) == 0 &&", "s.loaded != t.Publication &&"},
}

// TestMutants plants one fault after the other and runs the seeds against it: they must fail, and say which
// promise was broken.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for i, m := range mutants {
		source := filepath.Join(root, "actors", "rounds", m.file)
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%s: %s must have exactly one %q", m.name,
			m.file, m.old)
		if !*long && i > 0 {
			continue
		}
		dir := t.TempDir()
		changed := filepath.Join(dir, m.file)
		require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o644))
		overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
		require.NoError(t, err)
		list := filepath.Join(dir, "overlay.json")
		require.NoError(t, os.WriteFile(list, overlay, 0o644))
		cmd := exec.Command("go", "test", "-overlay", list, "-count=1", "-run", "TestSeeds", ".")
		out, err := cmd.CombinedOutput()
		require.Error(t, err, "%s: no test finds it", m.name)
		found := false
		for _, p := range strings.Split(m.promise, "|") {
			found = found || strings.Contains(string(out), p)
		}
		require.True(t, found, "%s: found by something else than %s:\n%s", m.name, m.promise, out)
	}
}
