package token

import (
	"fmt"
	"unicode/utf8"
)

// wordPiece is BERT's model: from the start of a word on it takes the longest token, again and again. A word
// of which any part is unknown is unknown as a whole.
type wordPiece struct {
	ids    map[string]int32
	prefix string // of tokens that go on within a word
	unk    int32
	max    int // characters of a word; a longer one is unknown
}

func newWordPiece(f *modelFile) (*wordPiece, error) {
	m := &wordPiece{ids: f.Vocab, prefix: "##", max: 100}
	if f.Prefix != nil {
		m.prefix = *f.Prefix
	}
	if f.WordMax != nil {
		m.max = *f.WordMax
	}
	var err error
	m.unk, err = f.unknown("[UNK]")
	return m, err
}

// unknown returns the id of the unknown token, whose usual name is given.
func (f *modelFile) unknown(usual string) (int32, error) {
	if f.UnkToken != nil {
		usual = *f.UnkToken
	}
	id, ok := f.Vocab[usual]
	if !ok {
		return 0, fmt.Errorf("tokenizer.json: model.unk_token %q is not in model.vocab", usual)
	}
	return id, nil
}

// appendIDs implements model.
func (m *wordPiece) appendIDs(_ *scratch, out []int32, word string) []int32 {
	if utf8.RuneCountInString(word) > m.max {
		return append(out, m.unk)
	}
	from := len(out)
	for start := 0; start < len(word); {
		id, end := m.longest(word, start)
		if end == start {
			return append(out[:from], m.unk)
		}
		out, start = append(out, id), end
	}
	return out
}

// longest returns the longest token at a place of a word, and its end.
func (m *wordPiece) longest(word string, start int) (id int32, end int) {
	prefix := ""
	if start > 0 {
		prefix = m.prefix
	}
	for end = len(word); end > start; {
		if id, ok := m.ids[prefix+word[start:end]]; ok {
			return id, end
		}
		_, size := utf8.DecodeLastRuneInString(word[start:end])
		end -= size
	}
	return 0, start
}

// wordLevel is the model whose tokens are whole pieces.
type wordLevel struct {
	ids map[string]int32
	unk int32
}

func newWordLevel(f *modelFile) (*wordLevel, error) {
	unk, err := f.unknown("<unk>")
	return &wordLevel{f.Vocab, unk}, err
}

// appendIDs implements model.
func (m *wordLevel) appendIDs(_ *scratch, out []int32, piece string) []int32 {
	if id, ok := m.ids[piece]; ok {
		return append(out, id)
	}
	return append(out, m.unk)
}
