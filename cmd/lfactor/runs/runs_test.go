package runs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// aRun writes the records of a run.
func aRun(t *testing.T, dir, name string, began int, form int) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	b, err := json.Marshal(run.Record{Form: form, ID: dir, Name: name, Status: run.Finished, Started: time.Unix(int64(began), 0).UTC()})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, run.RecordName), b, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte("{\"step\":1,\"loss\":9}\n{\"step\":2,\"loss\":2.5}\n"), 0o600))
}

// say runs the verb.
func say(t *testing.T, args ...string) error {
	t.Helper()
	root := &cobra.Command{Use: "lfactor", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().StringP("output", "o", "json", "")
	root.AddCommand(Command())
	root.SetArgs(append([]string{"runs"}, args...))
	out := os.Stdout
	defer func() { os.Stdout = out }()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	require.NoError(t, err)
	defer null.Close()
	os.Stdout = null
	return root.Execute()
}

// TestSequences: ten drawn sequences of marks, archives and deletions leave what a simple model says, and touch no
// other run's folder.
func TestSequences(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 60))
		root := t.TempDir()
		want := map[string]run.Marks{}
		for i := range 5 {
			dir := filepath.Join(root, fmt.Sprint("r", i))
			aRun(t, dir, fmt.Sprint("n", i), i, 1)
			want[dir] = run.Marks{}
		}
		for range 30 {
			dir := filepath.Join(root, fmt.Sprint("r", rng.IntN(5)))
			m, there := want[dir]
			tag := fmt.Sprint("t", rng.IntN(3))
			var args []string
			switch rng.IntN(7) {
			case 0:
				m.Name = fmt.Sprint("name", rng.IntN(3))
				args = []string{"--name", m.Name}
			case 1:
				m.Note = fmt.Sprint("note\n", rng.IntN(3))
				args = []string{"--note", m.Note}
			case 2, 3:
				m.Tags = append(slices.Clone(m.Tags), tag)
				slices.Sort(m.Tags)
				m.Tags = slices.Compact(m.Tags)
				args = []string{"--tag", tag}
			case 4:
				m.Tags = slices.DeleteFunc(slices.Clone(m.Tags), func(x string) bool { return x == tag })
				args = []string{"--untag", tag}
			case 5:
				m.Archived = !m.Archived
				args = []string{fmt.Sprint("--archive=", m.Archived)}
			default:
				err := say(t, "--root", root, "delete", dir)
				require.Equal(t, there, err == nil, "%v", err)
				delete(want, dir)
				continue
			}
			err := say(t, append([]string{"--root", root, "mark", dir}, args...)...)
			require.Equal(t, there, err == nil, "%v", err)
			if there {
				want[dir] = m
			}
		}
		rows, err := List(root)
		require.NoError(t, err)
		got := map[string]run.Marks{}
		for _, r := range rows {
			if len(r.Marks.Tags) == 0 {
				r.Marks.Tags = nil
			}
			got[r.Dir] = r.Marks
			require.Equal(t, int64(2), r.Step)
			require.InDelta(t, 2.5, r.Loss, 1e-9)
		}
		for dir, m := range want {
			if len(m.Tags) == 0 {
				m.Tags = nil
			}
			want[dir] = m
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

// TestNames: a name finds its run, two runs of one name are told by their folders, a record of a later form is said, and
// what else lies in a folder outlives its run.
func TestNames(t *testing.T) {
	root := t.TempDir()
	aRun(t, filepath.Join(root, "a"), "one", 1, 1)
	aRun(t, filepath.Join(root, "b"), "one", 2, 1)
	aRun(t, filepath.Join(root, "c"), "three", 3, 99)
	err := say(t, "--root", root, "mark", "one", "--tag", "x")
	require.ErrorContains(t, err, "the name of 2 runs")
	require.ErrorContains(t, err, filepath.Join(root, "a"))
	require.ErrorContains(t, say(t, "--root", root, "mark", "none", "--tag", "x"), "the name of 0 runs")
	require.NoError(t, say(t, "--root", root, "mark", filepath.Join(root, "b"), "--name", "two"))
	require.NoError(t, say(t, "--root", root, "mark", "two", "--tag", "x"))
	require.ErrorContains(t, say(t, "--root", root, "mark", "two", "--name", strings.Repeat("x", 101)), "at most 100 characters")
	rows, err := List(root)
	require.NoError(t, err)
	require.Equal(t, []string{"three", "two", "one"}, []string{rows[0].Name, rows[1].Name, rows[2].Name})
	require.Equal(t, "unknown", rows[0].Record.Status)
	require.Contains(t, rows[0].Record.Reason, "form 99, of a later lfactor")

	require.NoError(t, os.Mkdir(filepath.Join(root, "b", "step-2"), 0o700))
	left, err := run.Delete(filepath.Join(root, "b"))
	require.NoError(t, err)
	require.Equal(t, []string{"step-2"}, left)
	require.NoFileExists(t, filepath.Join(root, "b", run.MarksName))
	require.NoError(t, os.WriteFile(filepath.Join(root, "a", run.MarksName), []byte("{"), 0o600))
	require.ErrorContains(t, say(t, "--root", root), "mend or remove it")
}
