package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// TestHelpAboutNothing: help about a command that does not exist is a wrong command line at any depth, with
// the command that was meant, and help about one that exists is not.
func TestHelpAboutNothing(t *testing.T) {
	tree := func(out io.Writer) *cobra.Command {
		leaf := &cobra.Command{Use: "prune DIR", Short: "of a leaf", Args: cobra.ExactArgs(1),
			RunE: func(*cobra.Command, []string) error { return nil }}
		inner, root := &cobra.Command{Use: "ckpt", Short: "of an inner one"}, &cobra.Command{Use: "lfactor",
			Short: "of the root", SilenceErrors: true, SilenceUsage: true}
		root.PersistentFlags().StringP("output", "o", "text", "form")
		root.SetOut(out)
		inner.AddCommand(leaf, &cobra.Command{Use: "inside", Hidden: true, Run: func(*cobra.Command,
			[]string) {
		}},
			&cobra.Command{Use: "ps", Args: cobra.NoArgs, Run: func(*cobra.Command, []string) {}})
		root.AddCommand(inner)
		Strict(root)
		return root
	}
	for line, want := range map[string]string{
		"": "of the root", "--help": "of the root", "help": "of the root", "-o json --help": "of the root",
		"ckpt --help": "of an inner one", "help ckpt": "of an inner one", "help ckpt prune": "of a leaf",
		"ckpt prune --help": "of a leaf", "ckpt prune here --help": "of a leaf",
		"help help": "Help provides help", "help --help": "Help provides help",
		"ckp --help": `did you mean "ckpt"`, "--help ckp": `did you mean "ckpt"`, "help ckp": `did you mean "ckpt"`,
		"ckpt prun -h": `did you mean "prune"`, "help ckpt prun": `did you mean "prune"`,
		"ckpt nonsense":           `unknown command "nonsense"; want prune, ps`, // not what is hidden
		"ckpt ps 99":              `lfactor ckpt ps: it takes no arguments, and got ["99"]`,
		"-o json nonsense --help": `unknown command "nonsense"`,
	} {
		var out strings.Builder
		c := tree(&out)
		c.SetArgs(strings.Fields(line))
		err := Execute(t.Context(), c)
		if strings.HasPrefix(want, "of ") || strings.HasPrefix(want, "Help ") {
			require.NoError(t, err, line)
			require.Contains(t, out.String(), want, line)
			continue
		}
		require.ErrorContains(t, err, want, line)
		require.Equal(t, exit.Usage, ExitCode(err), line)
		require.Empty(t, out.String(), line)
	}
}

// TestLevelOfNone: a level of instructions that the machine lacks is a wrong setting, said before anything begins.
func TestLevelOfNone(t *testing.T) {
	ran := false
	c := &cobra.Command{Use: "lfactor", Run: func(*cobra.Command, []string) { ran = true }}
	c.SetArgs(nil)
	t.Setenv("LFACTOR_CPU", "generic")
	err := Execute(t.Context(), c)
	require.ErrorContains(t, err, "LFACTOR_CPU=generic: this machine has ")
	require.EqualValues(t, exit.Usage, ExitCode(err))
	require.False(t, ran)
	t.Setenv("LFACTOR_CPU", "go")
	require.NoError(t, Execute(t.Context(), c))
	require.True(t, ran)
}
