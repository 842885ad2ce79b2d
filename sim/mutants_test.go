package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// mutant is a fault planted in the code of actors/core: tests must find it, unless why says why they cannot.
type mutant struct {
	name, file, old, new string
	why                  string
}

// TestMutants plants one fault after the other in the code of actors/core, by an overlay of the file,
// and runs the tests of the protocols against it: they must fail, unless the table says why they cannot.
func TestMutants(t *testing.T) {
	if !*long {
		t.Skipf("%d faults planted in the code of actors/core, about ten seconds each: add -long",
			len(mutants))
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			source := filepath.Join(root, "actors", "core", m.file)
			text, err := os.ReadFile(source)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(text), m.old), "%s must have exactly one %q",
				m.file, m.old)
			switch by := killer(t, root, source, strings.Replace(string(text), m.old, m.new, 1)); {
			case by == "" && m.why == "":
				t.Error("no test finds it")
			case by == "":
				t.Logf("not found, as expected: %s", m.why)
			default:
				t.Logf("found by %s", by)
			}
		})
	}
}

// TestMutantsFit: every fault of the list changes exactly one place of the code as it is now.
func TestMutantsFit(t *testing.T) {
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join("..", "actors", "core", m.file))
		require.NoError(t, err)
		if strings.Count(string(text), m.old) != 1 {
			t.Errorf("%s: %s must have exactly one %q", m.name, m.file, m.old)
		}
	}
}

// killer runs the tests with a file replaced and names the first that fails, "" if none does.
func killer(t *testing.T, root, source, text string) string {
	dir := t.TempDir()
	planted, overlay := filepath.Join(dir, "planted.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(planted, []byte(text), 0o600))
	list, err := json.Marshal(map[string]map[string]string{"Replace": {source: planted}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, list, 0o600))
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	c := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-failfast", "-count=1",
		"-timeout", "2m",
		"-run", "^Test(Seeds|Restart|LateControl|CommitKilled|RecoverySources|Partitions|Succession|"+
			"OwedUpdate|PlantedBugs|Doubled|CommitFails|EvalAgain|JoinLate|LossScale|Commit|TakeOver|"+
			"TakeOverLosses|Claimed|KeptValues|ClipFactor|Sequences|Voided|VoidsInARow|Objections|GivenTwice|EarlyThenClaim|"+
			"Gone|Twice|Once|Spikes|LossesCovered|HostsLost)$",
		"./actors/core", "./sim")
	c.Dir = root
	out, err := c.CombinedOutput()
	if err == nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(line, "--- FAIL: "); ok {
			return name[:strings.IndexByte(name+" ", ' ')]
		}
	}
	require.NotContains(t, string(out), "build failed", "the planted fault does not compile")
	return fmt.Sprintf("%.300s", out)
}
