package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs/exit"
)

// TestTakeForm takes -o out wherever it stands, and refuses forms that there are none of.
func TestTakeForm(t *testing.T) {
	for args, want := range map[string]string{"a -o json b": "json a b", "--output=jsonl x": "jsonl x",
		"-o=text": "text", "a b": "text a b", "plan.pp=2 -o json": "json plan.pp=2"} {
		form, rest, err := TakeForm(strings.Fields(args))
		require.NoError(t, err, args)
		require.Equal(t, want, strings.TrimSpace(form+" "+strings.Join(rest, " ")), args)
	}
	for _, args := range []string{"-o", "-o xml", "--output=", "a -o"} {
		_, _, err := TakeForm(strings.Fields(args))
		require.Error(t, err, args)
		require.Equal(t, exit.Usage, ExitCode(err), args)
	}
}

// FuzzTakeForm: no words crash it, and no -o is left.
func FuzzTakeForm(f *testing.F) {
	f.Add("a -o json b")
	f.Add("-o= --output -o")
	f.Fuzz(func(t *testing.T, line string) {
		form, rest, err := TakeForm(strings.Fields(line))
		if err != nil {
			return
		}
		require.Contains(t, []string{"text", "json", "jsonl"}, form)
		require.False(t, slices.ContainsFunc(rest, func(a string) bool {
			return a == "-o" || strings.HasPrefix(a, "-o=") || strings.HasPrefix(a, "--output=")
		}))
	})
}
