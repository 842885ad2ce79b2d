package configs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocsNameKeys: what the texts of keys name is there: every word of the form section.key is a key, a
// section, or the beginning of one.
func TestDocsNameKeys(t *testing.T) {
	word := regexp.MustCompile(`\b[a-z_]+(\.[a-z_0-9]+)+`)
	sections, seen := table().names(""), 0
	for _, k := range Keys() {
		for _, name := range word.FindAllString(k.Doc, -1) {
			first, _, _ := strings.Cut(name, ".")
			if !slices.Contains(sections, first) {
				continue
			}
			seen++
			require.True(t, table().byName[name] != nil || table().sections[name],
				"the text of %s names %s, which is no key", k.Name, name)
		}
	}
	require.Greater(t, seen, 50)
}

// TestPagesNameKeys: what pages of the documentation name as section.key between backquotes is a key of the schema, a
// section, or a file.
func TestPagesNameKeys(t *testing.T) {
	code := regexp.MustCompile("`([a-z_]+(?:\\.[a-z_0-9]+)+)(?:[=:][^`]*)?`")
	sections, seen := table().names(""), 0
	endings := []string{"yaml", "jsonl", "json", "md", "py", "go", "txt", "parquet", "tar", "csv", "html", "svg", "bin", "idx", "sh", "safetensors"}
	require.NoError(t, filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".md" || strings.Contains(path, "testdata") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range code.FindAllStringSubmatch(line, -1) {
				first, _, _ := strings.Cut(m[1], ".")
				if first == "device" || strings.HasPrefix(m[1], "model.foundation.") { // a machine's, and LoongForge's
					continue
				}
				if !slices.Contains(sections, first) || slices.Contains(endings, m[1][strings.LastIndexByte(m[1], '.')+1:]) {
					continue
				}
				seen++
				assert.True(t, table().byName[m[1]] != nil || table().sections[m[1]], "%s:%d names %s, which is no key", path,
					i+1, m[1])
			}
		}
		return nil
	}))
	require.Greater(t, seen, 500)
}
