package token

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPieces: the pieces of a text's tokens, joined, are the text, for every tokenizer and line; special tokens have
// none. Whoever cuts characters into bytes has a piece for each byte.
func TestPieces(t *testing.T) {
	for _, name := range goldenNames(t) {
		tok, g := loadGolden(t, name)
		first, other := tok.Pieces()
		checked := 0
		for i, ids := range g.IDs[:160] {
			var text []byte
			known, begun := true, false
			for _, id := range ids {
				if tok.IsSpecial(id) {
					require.Nil(t, other[id])
					continue
				}
				p := other[id]
				if !begun {
					p = first[id]
				}
				silent := !begun && tok.Decode([]int32{id}, true) == "" // a mark of a space at the beginning
				begun, known = true, known && (p != nil || silent)
				text = append(text, p...)
			}
			if known {
				checked++
				require.Equal(t, tok.Decode(ids, true), lossyUTF8(text), "%s line %d", name, i)
			}
		}
		require.Greater(t, checked, 100, name)
	}
}
