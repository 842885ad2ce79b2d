package cost

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestKeys: every setting of a cluster file is described, and nothing else; defaults are those that Read has.
func TestKeys(t *testing.T) {
	said := map[string]Key{}
	for _, k := range Keys() {
		require.NotEmpty(t, k.Doc, k.Name)
		require.NotContains(t, said, k.Name)
		said[k.Name] = k
	}
	_, err := Read("m.yaml", []byte("nothing: 1\n"))
	for _, name := range append([]string{"name", "software", "network.dispatch", "network.cables"}, fieldNames()...) {
		require.Contains(t, said, name)
		require.ErrorContains(t, err, name)
		delete(said, name)
	}
	require.Empty(t, said)
	m, err := Read("m.yaml", []byte("device: {}\n"))
	require.Error(t, err)
	require.Equal(t, usual().Copy, m.Copy)
}

func fieldNames() (names []string) {
	for _, f := range fields {
		names = append(names, f.key)
	}
	return names
}
