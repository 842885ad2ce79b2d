package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTerms: whoever searches for the usual term of the field finds it where the thing begins: each row of the second
// table of docs/glossary.md names terms, keys that there are, and a file in whose text each of the terms stands.
func TestTerms(t *testing.T) {
	const root = "../.."
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(root, name))
		require.NoError(t, err)
		return string(b)
	}
	keys := read("docs/reference/keys.md")
	_, table, ok := strings.Cut(read("docs/glossary.md"), "## Terms of the field")
	require.True(t, ok)
	wrapped, key := regexp.MustCompile(`\s*\n\s*//\s*`), regexp.MustCompile("`([a-z]+\\.[a-z_.]+)")
	terms := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || strings.HasPrefix(cells[1], " term") || strings.HasPrefix(cells[1], "---") {
			continue
		}
		file := strings.Trim(cells[3], " `")
		text := strings.ToLower(wrapped.ReplaceAllString(read(file), " "))
		for term := range strings.SplitSeq(strings.TrimSpace(cells[1]), ", ") {
			require.Contains(t, text, strings.ToLower(term), "%s lacks the term that docs/glossary.md sends there", file)
			terms++
		}
		for _, k := range key.FindAllStringSubmatch(cells[2], -1) {
			require.Contains(t, keys, "`"+k[1]+"`", "docs/glossary.md names a key that is none")
		}
	}
	require.GreaterOrEqual(t, terms, 80)
}
