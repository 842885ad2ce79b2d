package token

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Shown piece by piece, a text is the text decoded at once, for every tokenizer and line.
func TestStream(t *testing.T) {
	for _, name := range goldenNames(t) {
		tok, g := loadGolden(t, name)
		for i, ids := range g.IDs[:160] {
			for _, skip := range []bool{false, true} {
				var out strings.Builder
				s := tok.NewStream(skip)
				for _, id := range ids {
					out.WriteString(s.Push(id))
				}
				out.WriteString(s.Flush())
				require.Equal(t, tok.Decode(ids, skip), out.String(), "%s line %d", name, i)
			}
		}
	}
}

// A character of several tokens appears whole, and not before its last one.
func TestStreamHoldsBack(t *testing.T) {
	tok, _ := loadGolden(t, "llama3")
	ids := tok.Encode("a𓂀b", false)
	require.Greater(t, len(ids), 4)
	s := tok.NewStream(false)
	var shown []string
	for _, id := range ids {
		if text := s.Push(id); text != "" {
			shown = append(shown, text)
		}
	}
	require.Equal(t, []string{"a", "𓂀", "b"}, shown)
	broken, ok := tok.TokenID("Â")
	require.True(t, ok)
	require.Equal(t, "", s.Push(broken))
	require.Equal(t, "\uFFFD", s.Flush())
}
