package configs

import (
	"github.com/lfactor/lfactor/configs/megatron"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestElsewhereFlags: what other trainers' flags are answered with are flags and keys that there are.
func TestElsewhereFlags(t *testing.T) {
	_, err := Load(Request{Args: []string{"--model.name=x", "--learning_rate", "3"}})
	require.ErrorContains(t, err, "give --lr, or optimizer.lr=")
	flags, named := knownFlags(), 0
	for flag, try := range megatron.ElsewhereFlags {
		require.False(t, slices.Contains(flags, flag), flag)
		for _, word := range strings.FieldsFunc(try, func(r rune) bool { return strings.ContainsRune(" ,;:=…[]()", r) }) {
			if name, ok := strings.CutPrefix(word, "--"); ok {
				named++
				require.True(t, slices.Contains(flags, name), "%s: %s", flag, name)
			} else if strings.Contains(word, ".") {
				named++
				require.NotNil(t, table().byName[word], "%s: %s", flag, word)
			}
		}
	}
	require.Greater(t, named, 25)
}
