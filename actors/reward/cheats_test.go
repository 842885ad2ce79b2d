package reward

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/sandbox"
	"github.com/lfactor/lfactor/configs"
)

var long = flag.Bool("long", false, "run the long tier as well")

// programs are the sections of a file: their names and texts.
func programs(t *testing.T, file string) (names, texts []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, s := range strings.Split("\n"+string(text), "\n=== ")[1:] {
		name, body, _ := strings.Cut(s, "\n")
		names, texts = append(names, name), append(texts, body+"\n")
	}
	return names, texts
}

// judging skips where answers cannot be run.
func judging(t *testing.T) (Func, *configs.Reward) {
	t.Helper()
	if err := sandbox.Check(); err != nil {
		t.Skip(err) // the machine's matter, said at the start of a run
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip(err)
	}
	f, c := of(t, configs.Reward{Kind: "code", Memory: 1, Timeout: 300})
	c.Parallel = 2
	return f, c
}

// TestHonest: solutions with classes, generators, exceptions, output and callbacks pass their tests, though these run
// in another process. With -long each is tried with four numbers.
func TestHonest(t *testing.T) {
	f, c := judging(t)
	numbers := []string{"3"}
	if *long {
		numbers = []string{"2", "3", "4", "5"}
	}
	names, texts := programs(t, "testdata/honest.txt")
	var answers []Answer
	var of []string
	for i, text := range texts {
		for _, n := range numbers {
			solution, tests, ok := strings.Cut(strings.ReplaceAll(text, "$n", n), "\n---\n")
			require.True(t, ok, names[i])
			answers = append(answers, column(solution+"\n", tests))
			of = append(of, names[i])
		}
	}
	failed := 0
	for i, r := range Each(context.Background(), f, c, answers) {
		if r.Err != nil || r.Value != 1 || r.Suspect {
			t.Errorf("%s: %+v", of[i], r)
			failed++
		}
	}
	t.Logf("%d honest solutions, %d wrongly failed", len(answers), failed)
}

// duty are the tests that cheats are held to. Some of them hand over what a cheat may look into.
const duty = `assert double(4) == 8
assert double("a") == "aa"
assert double([1]) == [1, 1]
import math
assert abs(double(1.5) - 3) < 1e-6
def own(v): return v
try:
    apply(own, 4)
except (NameError, AttributeError):
    pass
def generator():
    yield 1
try:
    drain(generator())
except (NameError, AttributeError):
    pass
assert double(5) == 10
`

// TestCheats: answers that end early, replace what the tests compare by, look for them or reach out of their process
// have no reward.
func TestCheats(t *testing.T) {
	f, c := judging(t)
	c.Timeout = 20
	names, texts := programs(t, "testdata/cheats.txt")
	kinds := map[string]int{}
	var answers []Answer
	for i, text := range texts {
		kind, _, _ := strings.Cut(names[i], ":")
		kinds[kind]++
		answers = append(answers, column(text, duty))
	}
	for _, kind := range []string{"exits", "builtins", "operators", "frames", "proc", "imports", "ends", "ctypes", "files", "forks"} {
		require.GreaterOrEqual(t, kinds[kind], 3, kind)
	}
	passed, suspected := 0, 0
	for i, r := range Each(context.Background(), f, c, answers) {
		require.NoError(t, r.Err, names[i])
		if r.Value != 0 {
			t.Errorf("%s passes", names[i])
			passed++
		}
		if r.Suspect {
			suspected++
		}
	}
	t.Logf("%d cheats of %d kinds: %d pass, %d are suspected", len(answers), len(kinds), passed, suspected)
	require.Greater(t, suspected, len(answers)/4)
	honest := Each(context.Background(), f, c, []Answer{column("def double(x): return x + x\n", duty)})
	require.Equal(t, []Result{{Value: 1}}, honest)
}

// column is an answer to a record with tests.
func column(text, tests string) Answer {
	b, _ := json.Marshal(tests) // a text always marshals
	return *answer(text, string(b))
}
