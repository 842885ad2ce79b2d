package token

import (
	"strings"
	"unicode/utf8"
)

// wordEnd has the symbols that a piece ends with where the vocabulary marks ends of words: those of tokens
// with the suffix, as CLIP's "e</w>". The first symbols of a piece have none.
type wordEnd struct {
	bytes [256]int32       // byte-level: of each byte; -1: none
	chars map[string]int32 // else of each character
}

// newWordEnd is nil for models without a suffix.
func newWordEnd(f *modelFile, byteLevel bool) *wordEnd {
	if f.Suffix == nil || *f.Suffix == "" {
		return nil
	}
	e := &wordEnd{chars: map[string]int32{}}
	for i := range e.bytes {
		e.bytes[i] = -1
	}
	for tok, id := range f.Vocab {
		stem, ok := strings.CutSuffix(tok, *f.Suffix)
		if !ok {
			continue
		}
		if b, ok := bytesOf(stem); byteLevel && ok && len(b) == 1 {
			e.bytes[b[0]] = id
		}
		if utf8.RuneCountInString(stem) == 1 {
			e.chars[stem] = id
		}
	}
	return e
}

// byteID is the symbol of byte i of a piece, -1 for none.
func (m *bpe) byteID(piece string, i int) int32 {
	if m.end != nil && i == len(piece)-1 {
		return m.end.bytes[piece[i]]
	}
	return m.byteIDs[piece[i]]
}

// symbol is the symbol of the character c at place i of a piece.
func (m *bpe) symbol(piece string, i int, c string) (int32, bool) {
	if m.end != nil && i+len(c) == len(piece) {
		id, ok := m.end.chars[c]
		return id, ok
	}
	id, ok := m.symbols[c]
	return id, ok
}

// Around gives the special tokens that Encode puts before and behind a text.
func (t *Tokenizer) Around() (before, after []int32) {
	return append([]int32{}, t.post.before...), append([]int32{}, t.post.after...)
}
