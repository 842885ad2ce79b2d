package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFlagTables: train, sim and plan have their flags once: the help has each in a section, completion
// offers each and what it takes, and each is read.
func TestFlagTables(t *testing.T) {
	for verb, sections := range map[string][]string{"train": {"What is trained:", "On a cluster:", "To see it:", "Output:"},
		"plan": {"On which machine:", "Of the run file's own plan:", "Another plan:", "Output:"},
		"sim":  {"What is simulated:", "Faults:", "What comes out:", "Output:"}} {
		_, help := carriedOut(t, verb, "--help")
		for _, s := range append(sections, "Examples:", "Usage:") {
			require.Equal(t, 1, strings.Count(help, "\n"+s+"\n"), "%s: %s", verb, s)
		}
		require.NotContains(t, help, "Global Flags:", "they stand in a section")
		for _, line := range strings.Split(help, "\n") {
			require.LessOrEqual(t, len(line), 200, line)
		}
		_, offered := carriedOut(t, "__complete", verb, "run.yaml", "--")
		for _, line := range strings.Split(strings.TrimSpace(offered), "\n") {
			name, doc, ok := strings.Cut(line, "\t")
			if !ok {
				continue // what the shell is to do
			}
			require.Contains(t, help, name, verb)
			require.NotEmpty(t, doc, "%s %s", verb, name)
			if name == "--help" {
				continue
			}
			// that the run file is not there is the fault that is found
			_, out := carriedOut(t, verb, "no-such-run.yaml", name)
			require.NotContains(t, out, "unknown", "%s %s", verb, name)
		}
	}
	for words, want := range map[string]string{
		"sim run.yaml --faults crash,s":         "crash,straggler\n",
		"sim run.yaml --faults=cr":              "--faults=crash\n",
		"sim run.yaml --cluster h8":             "h800\n",
		"sim run.yaml --schedule zb-h":          "zb-h1\nzb-h2\n",
		"sim replay 3 run.yaml --colle":         "--collective\t",
		"plan run.yaml --ten":                   "--tensors\t",
		"train run.yaml -o js":                  "json\njsonl\n",
		"train run.yaml --cluster c":            "current\n",
		"train run.yaml --pipeline-model":       "--pipeline-model-parallel-size\tplan.pp: ",
		"train run.yaml plan.sched":             "plan.schedule=\t",
		"train run.yaml --detach plan.overlap=": "plan.overlap=true\n",
	} {
		_, out := carriedOut(t, append([]string{"__complete"}, strings.Fields(words)...)...)
		require.Contains(t, out, want, words)
	}
	for words, directive := range map[string]string{"train run.yaml --plan p": ":0", "sim run.yaml --svg s": ":0",
		"sim run.yaml --steps 1": ":4"} { // 0 leaves files to the shell, 4 offers none
		_, out := carriedOut(t, append([]string{"__complete"}, strings.Fields(words)...)...)
		require.Contains(t, out, directive, words)
	}
}
