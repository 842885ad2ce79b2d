package configs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

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
