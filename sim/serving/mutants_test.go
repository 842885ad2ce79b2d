package serving

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutants are faults that are planted in package queue and in the engine, with the promises whose breach tells of them.
var mutants = []struct{ name, promise, file, old, new string }{
	{"replaced weights take requests", "S-8", "actors/serve/queue/queue.go", "case q.Retired:", "case false:"},
	{"one too many waits", "S-3", "actors/serve/queue/queue.go",
		"s.Waiting+len(rs) > q.Most", "s.Waiting+len(rs) > q.Most+1"},
	{"tokens that wait are not counted", "S-3", "actors/serve/queue/queue.go",
		"s.WaitingTokens+tokens > q.Tokens", "tokens > q.Tokens"},
	{"a lone long request is refused", "S-3", "actors/serve/queue/queue.go", "s.Waiting > 0 && s.W", "s.W"},
	{"who has ended keeps its pages", "S-4|S-1", "stages/sample/engine.go",
		"	s.ended = true\n	e.drop(s)\n", "	s.ended = true\n"},
	{"who gave its pages up is forgotten", "S-1", "stages/sample/engine.go",
		"	e.waiting = append([]*sequence{last}, e.waiting...)\n", ""},
	{"an error ends those that run alone", "S-9", "stages/sample/engine.go",
		"range append(slices.Clone(e.running), e.waiting...) {\n			if",
		"range e.running {\n			if s.Began > 0 {\n				continue\n			}\n			if"},
	{"one too many runs", "S-4", "stages/sample/engine.go",
		"len(e.running) >= e.o.Running ||", "len(e.running) > e.o.Running ||"},
	{"who finds no place is forgotten", "S-1|S-9", "stages/sample/engine.go",
		"left = append(left, e.waiting[i:]...)", "_ = e.waiting[i:]"},
	{"a request goes on behind its end", "S-2|S-1|S-4|S-9|panic", "stages/sample/engine.go", "	s.ended = true\n", ""},
	{"an answer is a token too long", "S-2", "stages/sample/emit.go",
		"case s.drawn == s.Max ||", "case s.drawn > s.Max ||"},
	{"answers wait for prompts", "S-7", "stages/sample/batch.go",
		"range []bool{true, false}", "range []bool{false, true}"},
	{"a step is larger than it may be", "S-6", "stages/sample/batch.go", "left -= to - s.done", "left -= 1"},
	{"a page is shared and nobody counts it", "S-4|panic|S-1", "stages/sample/pages.go",
		"	p.refs[i]++\n	return i", "	return i"},
	{"shares are not looked at", "TestShares", "stages/sample/shares.go",
		"if len(names) < 2 {", "if len(names) < 9 {"},
	{"who was away has saved something up", "TestShares", "stages/sample/shares.go",
		"c[share] = max(c[share], least)", "_ = least"},
}

// TestMutants plants one fault after the other: the tests must fail, and say which promise was broken.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	if !*long {
		t.Logf("1 of %d planted faults: -long has the others", len(mutants))
	}
	for i, m := range mutants {
		source := filepath.Join(root, m.file)
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%s: %s must have exactly one %q", m.name, m.file, m.old)
		if !*long && i > 0 {
			continue
		}
		dir := t.TempDir()
		changed, list := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
		planted := strings.Replace(string(text), m.old, m.new, 1)
		require.NoError(t, os.WriteFile(changed, []byte(planted), 0o644))
		overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(list, overlay, 0o644))
		c := exec.Command("go", "test", "-overlay", list, "-count=1", "-run", "TestSeeds|TestShares", ".")
		out, err := c.CombinedOutput()
		require.Error(t, err, "%s: no test finds it", m.name)
		found := false
		for _, p := range strings.Split(m.promise, "|") {
			says := map[string]string{"panic": "panic: ", "TestShares": "FAIL: TestShares"}[p]
			found = found || strings.Contains(string(out), cmp.Or(says, ": "+p+": "))
		}
		require.True(t, found, "%s: found by something else than %s:\n%s", m.name, m.promise, out)
		t.Logf("%s: found", m.name)
	}
}
