package token

import (
	"slices"
	"strings"
)

// Pieces gives the bytes that each token adds to a text, by id: as its first token, and behind others. They are nil
// for ids without a token, for special tokens, and for tokens whose part of a text depends on those around them.
func (t *Tokenizer) Pieces() (first, other [][]byte) {
	first, other = make([][]byte, len(t.tokens)), make([][]byte, len(t.tokens))
	anchor, before, anchored := t.anchor()
	for i := range t.tokens {
		id := int32(i)
		tok, ok := t.visible(id, true)
		if !ok {
			continue
		}
		if t.byteTokens != nil {
			first[i], other[i] = t.byteTokens[i], t.byteTokens[i]
			continue
		}
		if c, ok := fallbackByte(tok); ok && t.Decode([]int32{id}, true) != tok {
			first[i], other[i] = []byte{c}, []byte{c}
			continue
		}
		first[i] = whole(t.Decode([]int32{id}, true), "")
		if anchored {
			other[i] = whole(t.Decode([]int32{anchor, id}, true), before)
		}
	}
	return first, other
}

// anchor is a token that no decoder changes for what follows it, and its text.
func (t *Tokenizer) anchor() (id int32, text string, ok bool) {
	for i := range t.tokens {
		id := int32(i)
		if tok, ok := t.visible(id, true); !ok || len(tok) == 0 || t.byteTokens != nil ||
			strings.ContainsFunc(tok, func(r rune) bool { return r < 'a' || r > 'z' }) {
			continue
		}
		text := t.Decode([]int32{id}, true)
		if text != "" && strings.HasPrefix(t.Decode([]int32{id, id}, true), text) {
			return id, text, true
		}
	}
	return 0, "", false
}

// whole is what a text adds to the one before it, nil if that is no whole characters.
func whole(text, before string) []byte {
	rest, ok := strings.CutPrefix(text, before)
	if !ok || strings.ContainsRune(rest, '\uFFFD') || rest == "" {
		return nil
	}
	return slices.Clone([]byte(rest))
}
