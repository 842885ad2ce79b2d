package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programLinesMax is what the document promises of its program.
const programLinesMax = 40

// TestLibraryProgram takes the program out of docs/library.md, vets and builds it, and runs it in a
// directory with a run file: it trains, goes on where it stopped, and simulates.
func TestLibraryProgram(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/library.md")
	require.NoError(t, err)
	programs := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(text, -1)
	require.Len(t, programs, 1)
	require.LessOrEqual(t, strings.Count(string(programs[0][1]), "\n"), programLinesMax)
	dir := tinyRun(t)
	file, bin := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
	require.NoError(t, os.WriteFile(file, programs[0][1], 0o644))
	for _, args := range [][]string{{"vet", file}, {"build", "-o", bin, file}} {
		// imports are those of the module that this test lies in
		out, err := exec.Command("go", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	c := exec.Command(bin, "run.yaml")
	c.Dir = dir
	out, err := c.CombinedOutput()
	require.NoError(t, err, "%s", out)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 7, "%s", out)
	for i, m := range metrics(t, dir) {
		require.EqualValues(t, i+1, m.Step)
		require.Regexp(t, `^step `+string(rune('1'+i))+`: loss 5\.\d{3}$`, lines[i], "no step is taken twice")
	}
	require.Regexp(t, `^on h100 a step takes \S+ s, with a bubble of \d+ %$`, lines[6])
}
