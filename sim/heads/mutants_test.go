package heads_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutant is a fault planted in what heads decide, or agents, with the promise that it breaks. Its file is
// one of the package of heads, or "agent/" and one of that of agents.
type mutant struct{ name, promise, file, old, new string }

var mutants = []mutant{
	{"a decision is told before it is stored", "H-1", "gate.go",
		"		g.turns = append(g.turns, turn{g.ops, g.said})\n		g.ops, g.said = nil, nil\n	}\n	return g.next(nil)",
		"		said := g.said\n		g.turns = append(g.turns, turn{g.ops, nil})\n		g.ops, g.said = nil, nil\n" +
			"		return g.next(said)\n	}\n	return g.next(nil)"},
	{"a commit that has failed counts as made", "H-1", "head.go",
		"		h.retry, h.unsure = h.timer(), true\n		return []Effect{Stuck{in.Err}, Wake{h.retry, retryAfter}}",
		"		h.unsure = true\n		return h.stored(in.N)"},
	{"a stale leader acts", "H-2", "head.go",
		"		return h.withdraw(in.Refused)", "		return h.stored(h.number)"},
	{"a lost agent is counted twice", "H-3", "agents.go",
		"	h.found(a)\n	if a.conn != 0 || h.ending {",
		"	h.lose(a, grace, a.why)\n	if a.conn != 0 || h.ending {"},
	{"two jobs get one host", "H-4", "jobs.go",
		"		if j.State == Running {\n			for _, n := range j.Hosts {",
		"		if j.State == Running && len(j.Procs) > 1 {\n			for _, n := range j.Hosts {"},
	{"a generation is given twice", "H-4", "jobs.go", "Gen: p.Gen + 1, Env: env",
		"Gen: max(1, p.Gen), Env: env"},
	{"a process that takes no step is left alone", "L", "procs.go",
		"	case control.Hung:\n		h.hung(j, m)\n", ""},
	{"a process that no host has room for is waited for", "L", "jobs.go",
		"	if p.NoRoom != \"\" { // the request", "	if false { // the request"},
	{"a job ends with its leader where a process has no room", "H-8", "procs.go",
		"	case j.narrows() && !j.Stop && (code", "	case j.narrows() && j.Stop && (code"},
	{"a token is used twice", "H-5", "tokens.go", "	h.dropToken(in.Key)\n	if err", "	if err"},
	{"a token that was used is good for the next head", "H-5", "tokens.go",
		"	h.dropToken(in.Key)\n	if err", "	delete(h.tokens, in.Key)\n	if err"},
	{"an event is lost with its head", "H-1|H-6", "head.go", "	h.put(eventKey(e.N), e)\n",
		"	if e.Kind != \"drain\" {\n		h.put(eventKey(e.N), e)\n	}\n"},
	{"events of two terms have one number", "H-6", "head.go",
		"n == 0 || e.N > h.events[n-1].N {", "e.Kind != \"start\" && (n == 0 || e.N > h.events[n-1].N) {"},
	{"a stranger leaves an event", "H-7", "tokens.go",
		"		h.say(Answer{Ask: in.Ask, Err: ErrNoToken})",
		"		h.event(Event{Kind: \"refused\", Text: in.Name})\n		h.say(Answer{Ask: in.Ask, Err: ErrNoToken})"},
	{"a commit that has failed is not made again", "L", "head.go",
		"if in.Timer == h.retry && h.commit != nil {", "if in.Timer == h.retry && h.commit == nil {"},
	{"a job without a host stands still", "L", "jobs.go",
		"	case host == \"\" && n == 0:\n		h.noLead(j, p.Host)\n",
		"	case host == \"\" && n == 0:\n"},
	{"jobs wait when a host is free again", "L", "jobs.go", "	h.event(Event{Kind: \"end\", Job: j.ID, " +
		"Text: fmt.Sprintf(\"job %s %s\", j.ID, why)})\n	h.due = true",
		"	h.event(Event{Kind: \"end\", Job: j.ID, Text: fmt.Sprintf(\"job %s %s\", j.ID, why)})"},
	{"processes of a lost host go on for ever", "L", "agents.go",
		"	h.lostWith(a.Name, fmt.Sprintf(\"was lost with its host %s (%s)\", a.Name, a.why))\n", ""},
	{"an order is obeyed again after a new connection", "H-4|A-2", "agent/way.go",
		"	a.late = nil\n	for _, k := range sorted(a.procs) {\n",
		"	a.late = nil\n	for _, k := range sorted(a.procs) {\n" +
			"		p := a.procs[k]\n		a.toProc(control.Message{Kind: control.Order, Job: p.Job,\n" +
			"			Proc: p.Proc.Proc, Gen: p.Gen, Spec: &control.Spec{Procs: 1}})\n"},
	{"a successor starts beside the process that it follows", "A-2", "agent/procs.go",
		"		p.waits = append(p.waits, m)\n		a.say(Kill{p.life})\n",
		"		a.say(Kill{p.life})\n		a.launch(m)\n"},
	{"an ended process is not told of to the next head", "A-3", "agent/agent.go",
		"			out = append(out, p)\n", "			_ = p\n"},
	{"a process that is being started is not waited for", "A-3", "agent/way.go",
		"if a.way.due = a.starting(); a.way.due {", "if a.way.due = false; a.way.due {"},
	{"a process that is silent is left alone", "L", "agent/procs.go",
		"p.Proc.Proc, p.Pid, p.hung)\n	a.say(Kill{p.life})\n", "p.Proc.Proc, p.Pid, p.hung)\n"},
	{"what waits for a process is forgotten", "L", "agent/procs.go",
		"		a.toProc(m)\n	}\n	if a.way.due", "	}\n	if a.way.due"},
}

// plantedIn is the file that a fault is planted in.
func plantedIn(m mutant) string {
	whose, name, ok := strings.Cut(m.file, "/")
	if !ok {
		whose, name = "head", m.file
	}
	return filepath.Join("..", "..", "actors", "cluster", whose, "decide", name)
}

// TestMutantsFit: every fault of the list changes exactly one place of the code as it is now.
func TestMutantsFit(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(plantedIn(m))
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "%s: %s must have exactly one %q", m.name,
			m.file,
			m.old)
	}
}

// TestMutants plants one fault after the other, and runs seeds against it: a promise is broken, the one
// that the list says.
func TestMutants(t *testing.T) {
	if !*long {
		t.Skipf("%d faults planted in the code of heads and agents, some seconds each: add -long",
			len(mutants))
	}
	promise := regexp.MustCompile(`seed (\d+), at [^:]*: ([^:]*): .*`)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			out := planted(t, m)
			found := promise.FindStringSubmatch(out)
			require.NotNil(t, found, "no promise is broken: %s", out)
			require.Regexp(t, "^("+m.promise+")$", found[2], found[0])
			t.Log(found[0])
		})
	}
}

// planted is what TestSeeds says of a fault.
func planted(t *testing.T, m mutant) string {
	source, err := filepath.Abs(plantedIn(m))
	require.NoError(t, err)
	text, err := os.ReadFile(source)
	require.NoError(t, err)
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	c := exec.CommandContext(t.Context(), "go", "test", "-overlay", overlay, "-count=1", "-timeout", "3m",
		"-run", "^TestSeeds$", ".", "-seeds", fmt.Sprint(1000))
	out, err := c.CombinedOutput()
	require.NotContains(t, string(out), "build failed")
	require.Error(t, err, "1000 seeds do not find it")
	return string(out)
}
