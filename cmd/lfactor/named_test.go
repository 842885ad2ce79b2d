package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// spoken finds a command line in a text: in a Go string that may go on in the next line, or in a document.
var (
	spoken = regexp.MustCompile("`lfactor((?: [a-z]+)+)")
	joined = regexp.MustCompile(`"\s*\+\s*"`)
)

// TestNamedCommandsExist: every command that an error, a help text or a document tells one to use is there.
func TestNamedCommandsExist(t *testing.T) {
	t.Parallel()
	c, seen := root(), 0
	c.InitDefaultCompletionCmd()
	c.InitDefaultHelpCmd()
	require.NoError(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || d.IsDir() || ext != ".go" && ext != ".md" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range spoken.FindAllStringSubmatch(joined.ReplaceAllString(string(text), ""), -1) {
			seen++
			if at, bad := stray(c, strings.Fields(m[1])); bad != "" {
				t.Errorf("%s: `lfactor%s`: %s has no command %s", path, m[1], at.CommandPath(), bad)
			}
		}
		return nil
	}))
	require.Greater(t, seen, 100)
}

// stray is the first word of a command line that would have to be a command and is none.
func stray(c *cobra.Command, words []string) (*cobra.Command, string) {
	at, rest, _ := c.Find(words)
	if at.HasSubCommands() && len(rest) > 0 && at.Name() != "sim" { // sim takes a file too
		return at, rest[0]
	}
	return at, ""
}
