package latent

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSizes: published autoencoders have as many parameters as their classes claim.
func TestSizes(t *testing.T) {
	for _, name := range Classes() {
		class, ok := Lookup(name)
		require.True(t, ok)
		require.NotEmpty(t, class.Sizes, name)
		for _, s := range class.Sizes {
			c, err := Read("config.json", []byte(withClass(name, s.Keys)))
			require.NoError(t, err, s.Name)
			m := c.Model()
			require.Equal(t, s.Params, m.Count(), s.Name)
			least := m.smallest()
			last := len(least) - 1
			require.NoError(t, m.FitsPixels(slices.Insert(least[:last:last], 1, least[last])))
		}
	}
}

// withClass is a config.json of a class.
func withClass(class, keys string) string {
	return strings.Replace(strings.Replace(keys, "{", `{"_class_name": "`+class+`", `, 1), ", }", "}", 1)
}
