package pools

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutant is a fault planted in package pool, with the promises whose breach tells of it.
type mutant struct{ name, promise, file, old, new string }

var mutants = []mutant{
	{"the tasks of a member that is lost are forgotten", "P-1|P-9|P-10", "queue.go",
		"		q.waiting = slices.Insert(q.waiting, at, t)\n", "		_ = at\n"},
	{"what waits when the pool is over has no answer", "P-1", "queue.go",
		"	for _, t := range q.waiting {\n", "	for _, t := range q.waiting[:0] {\n"},
	{"a pool that is over takes tasks", "P-1", "queue.go", "if q.failed = err; err == nil {", "if err == nil {"},
	{"who was lost still answers", "P-2|P-3|panic", "pool.go", "x.member == m.Epoch && (x.stage", "(x.stage"},
	{"a member answers what another was asked", "P-2", "queue.go", "{ return t.m.Step == m.Step }", "{ return true }"},
	{"what comes twice counts twice", "P-2|panic", "queue.go", "	if k < 0 {\n		return nil\n",
		"	if k < 0 {\n		return &actors.Message{Values: []float64{0, 0, 0, 0, 0}}\n"},
	{"the next member begins before the one before it has ended", "P-3", "pool.go",
		"	ctx.Send(x.ref, actors.Message{Kind: Leave, Epoch: x.member, Text: why})\n",
		"	ctx.Send(x.ref, actors.Message{Kind: Leave, Epoch: x.member, Text: why})\n	defer p.join(ctx, x)\n"},
	{"nobody looks at a member again", "P-4", "pool.go", "		p.arm(ctx, x)\n		return\n", "		return\n"},
	{"a member that lives may hold its task for ever", "P-4", "pool.go", "p.o.Longest > 0 && t < at", "false"},
	{"a task is given up too soon", "P-5", "queue.go", "t.lost >= q.Most", "t.lost+1 >= q.Most"},
	{"a task is given up too late", "P-5", "queue.go", "t.lost >= q.Most", "t.lost > q.Most"},
	{"a place has a member too many", "P-6", "pool.go", "x.vain >= p.o.Tries", "x.vain > p.o.Tries"},
	{"a result does not count for its place", "P-6", "pool.go", "x.vain, x.result = 0, ctx.Now()", "x.result = ctx.Now()"},
	{"a pool is over before its last place is", "P-6", "pool.go", "		if !p.some(resting, vacant, alive, leaving) {\n", "		if !p.some(vacant, alive, leaving) {\n"},
	{"words do not count, results do", "P-7", "pool.go", "if x.said, x.heard = ctx.Now(), true; m.Kind", "if x.heard = true; m.Kind"},
	{"time without tasks counts", "P-7", "pool.go", "x.said, x.result = ctx.Now(), ctx.Now()", "x.said = ctx.Now()"},
	{"weights are not given", "P-8", "queue.go",
		"			out = append(out, actors.Message{Kind: Load, Epoch: s.member, Comm: m.Comm})\n", ""},
	{"a member that has a result rests", "P-9|P-1", "queue.go", "	return true, q.Deal()\n", "	return true, nil\n"},
	{"a task that was lost goes to anybody", "P-9", "queue.go", "marked := t.lost > 0 && q.Most > 0", "marked := t.lost > 99"},
	{"a task is refused too soon", "P-11", "queue.go", "q.Limit > 0 && n >= q.Limit", "q.Limit > 0 && n+1 >= q.Limit"},
	{"a task too many waits", "P-11", "queue.go", "q.Limit > 0 && n >= q.Limit", "q.Limit > 0 && n > q.Limit"},
	{"a replica that computes is given more", "P-9", "queue.go", "!q.Loads && s.dealt != q.deals", "false"},
	{"a closed place is waited for", "P-1|P-9", "queue.go", "	q.Places--\n", ""},
	{"a place does not come back from its rest", "P-1|P-10|P-9", "pool.go", "		ctx.After(pause, p.at(x))\n", ""},
	{"a round begins a publication before its credit", "P-8|panic", "../rounds/schedule.go",
		"return max(0, round-s.Staleness)", "return max(0, round-s.Staleness-1)"},
	{"a part does not wait for the one before it", "P-2", "../rounds/desk.go", "return d.ready(TaskOf(m))",
		"return true || d.ready(TaskOf(m))"},
	{"a round is trained on before its last answer", "P-1|panic", "../rounds/desk.go", "return begun && n == 0",
		"return begun && n <= 1"},
	{"weights change under an answer", "P-8|P-9", "queue.go", "case len(s.tasks) > 0 && (!chained || len", "case len(s.tasks) > 0 && (len"},
}

// TestMutants plants one fault after the other and runs the seeds against it: they must fail, and say which promise was
// broken.
func TestMutants(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	if !*long {
		t.Logf("2 of %d planted faults: -long has the others", len(mutants))
	}
	for i, m := range mutants {
		source := filepath.Join(root, "actors", "pool", m.file)
		text, err := os.ReadFile(source)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%s: %s must have exactly one %q", m.name, m.file, m.old)
		if !*long && i%11 != 3 {
			continue
		}
		dir := t.TempDir()
		changed := filepath.Join(dir, filepath.Base(m.file))
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
			found = found || strings.Contains(string(out), ": "+p+": ")
		}
		require.True(t, found, "%s: found by something else than %s:\n%s", m.name, m.promise, out)
		t.Logf("%s: found", m.name)
	}
}
