package token

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bpe is the byte-pair model: it joins the symbols of a piece pair by pair, lowest rank first, leftmost
// first among equals (Sennrich et al., arXiv:1508.07909). A byte-level model works on the bytes of the text
// itself, not on the printable alphabet its file is written in; the two are one to one.
type bpe struct {
	symbols      map[string]int32  // what a piece starts from: single bytes or characters
	pieces       map[string]int32  // whole pieces that are tokens as they stand; nil unless ignore_merges
	merges       map[uint64]merged // by left id << 32 | right id
	byteIDs      [256]int32        // byte-level: symbol of each byte; else the <0xHH> token; -1: none
	byteLevel    bool
	byteFallback bool
	end          *wordEnd // of models whose last symbol of a piece differs from the others, nil for none
	unk          int32    // -1: characters outside the vocabulary are dropped
	fuseUnk      bool
	dropout      float64
	wordStart    bool // no token holds a ▁ behind another character
}

type merged struct{ rank, id int32 }

// spaceMark is what SentencePiece writes for a space.
const spaceMark = "\u2581"

// newBPE reads a model of byte-pair encoding, with merges or, as in tiktoken's files, with ranks alone.
func newBPE(f *modelFile, byteLevel bool) (*bpe, error) {
	m := &bpe{byteLevel: byteLevel, byteFallback: f.ByteFallback, fuseUnk: f.FuseUnk, unk: -1}
	if f.UnkToken != nil {
		id, ok := f.Vocab[*f.UnkToken]
		if !ok {
			return m, fmt.Errorf("tokenizer.json: model.unk_token %q is not in model.vocab", *f.UnkToken)
		}
		m.unk = id
	}
	if f.Dropout != nil {
		if m.dropout = *f.Dropout; !(m.dropout >= 0 && m.dropout <= 1) {
			return m, fmt.Errorf("tokenizer.json: model.dropout %g is no probability", m.dropout)
		}
	}
	m.fillSymbols(f)
	m.end = newWordEnd(f, byteLevel)
	if f.Ranks != nil {
		m.fillRanks(f)
		return m, nil
	}
	return m, m.fillMerges(f)
}

// fillRanks permits every merge whose result is a token, in the order of the results' ranks: the rule of
// tiktoken, and with scores for ranks that of SentencePiece.
func (m *bpe) fillRanks(f *modelFile) {
	m.merges = make(map[uint64]merged, 2*len(f.Ranks))
	_, m.wordStart = m.symbols[spaceMark]
	for tok, rank := range f.Ranks {
		id := f.Vocab[tok]
		for i := range tok {
			if i == 0 {
				continue
			}
			a, okA := f.Vocab[tok[:i]]
			b, okB := f.Vocab[tok[i:]]
			if okA && okB {
				m.merges[pairKey(a, b)] = merged{rank, id}
			}
		}
		m.wordStart = m.wordStart && (len(tok) == len(spaceMark) ||
			!strings.Contains(strings.TrimLeft(tok, spaceMark), spaceMark))
	}
	m.wordStart = m.wordStart && m.pieces == nil
}

// fillSymbols finds the tokens that pieces start from.
func (m *bpe) fillSymbols(f *modelFile) {
	m.symbols = map[string]int32{}
	if f.IgnoreMerges {
		m.pieces = make(map[string]int32, len(f.Vocab))
	}
	for i := range m.byteIDs {
		m.byteIDs[i] = -1
		if id, ok := f.Vocab[fmt.Sprintf("<0x%02X>", i)]; ok && !m.byteLevel {
			m.byteIDs[i] = id
		}
	}
	for tok, id := range f.Vocab {
		raw := tok
		if m.byteLevel {
			b, ok := bytesOf(tok)
			if !ok {
				continue
			}
			raw = string(b)
			if len(b) == 1 {
				m.byteIDs[b[0]] = id
			}
		} else if r, size := utf8.DecodeRuneInString(tok); size == len(tok) && r != utf8.RuneError {
			m.symbols[tok] = id
		}
		if m.pieces != nil {
			m.pieces[raw] = id
		}
	}
	if id, ok := f.Vocab["\uFFFD"]; ok && !m.byteLevel {
		m.symbols["\uFFFD"] = id
	}
}

// fillMerges enters the merges by their pair. It also finds out whether merges ever cross a word,
// which allows cutting a text at words.
func (m *bpe) fillMerges(f *modelFile) error {
	m.merges = make(map[uint64]merged, len(f.Merges))
	_, m.wordStart = m.symbols[spaceMark]
	for rank, pair := range f.Merges {
		a, okA := f.Vocab[pair[0]]
		b, okB := f.Vocab[pair[1]]
		id, ok := f.Vocab[pair[0]+pair[1]]
		if !okA || !okB || !ok {
			return fmt.Errorf("tokenizer.json: model.merges[%d] %q: a part or the result is not in "+
				"model.vocab", rank, pair)
		}
		m.merges[pairKey(a, b)] = merged{int32(rank), id}
		m.wordStart = m.wordStart && !strings.Contains(strings.TrimLeft(pair[0]+pair[1], spaceMark), spaceMark)
	}
	m.wordStart = m.wordStart && m.pieces == nil
	return nil
}

func pairKey(a, b int32) uint64 { return uint64(a)<<32 | uint64(uint32(b)) }

// addWordSplit cuts long text into words for a SentencePiece-style model that has no pre-tokenizer of its
// own. No merge can cross a word's start, so ids are the same and words can be cached.
func (m *bpe) addWordSplit(splits []splitter) []splitter {
	if m.byteLevel || !m.wordStart || m.end != nil {
		return splits
	}
	return append(splits, scanner(scanWord))
}

// scanWord ends a piece before the first ▁ that follows another character.
func scanWord(text string, from int) int {
	i := from
	for strings.HasPrefix(text[i:], spaceMark) {
		i += len(spaceMark)
	}
	if k := strings.Index(text[i:], spaceMark); k >= 0 {
		return i + k
	}
	return len(text)
}

// appendIDs appends the ids of one piece, which is not empty.
func (m *bpe) appendIDs(s *scratch, out []int32, piece string) []int32 {
	if m.dropout > 0 {
		if s.word = m.start(s.word[:0], piece); len(s.word) == 0 {
			return out
		}
		return m.joinDropout(s, out)
	}
	if m.pieces != nil {
		if id, ok := m.pieces[piece]; ok {
			return append(out, id)
		}
	}
	if ids, ok := s.cached(piece); ok {
		return append(out, ids...)
	}
	s.word = m.start(s.word[:0], piece)
	from := len(out)
	if len(s.word) <= scanMax {
		out = m.joinShort(s, out)
	} else {
		out = m.joinLong(s, out)
	}
	s.keep(piece, out[from:])
	return out
}

// start appends the symbols of piece.
func (m *bpe) start(word []int32, piece string) []int32 {
	if !m.byteLevel {
		return m.startChars(word, piece)
	}
	for i := range len(piece) {
		if id := m.byteID(piece, i); id >= 0 {
			word = append(word, id)
		} else if m.unk >= 0 {
			word = m.appendUnk(word, i > 0 && m.byteIDs[piece[i-1]] < 0)
		}
	}
	return word
}

// appendUnk appends the unknown token, unless it is fused with the one before.
func (m *bpe) appendUnk(word []int32, follows bool) []int32 {
	if follows && m.fuseUnk {
		return word
	}
	return append(word, m.unk)
}

// startChars appends a symbol for each character, else its bytes, else the unknown token. A pending unknown is written
// only when the next known character or the end comes, behind bytes in between: the library's order.
func (m *bpe) startChars(word []int32, piece string) []int32 {
	pending := false
	for i, r := range piece {
		c := piece[i : i+utf8.RuneLen(r)]
		if id, ok := m.symbol(piece, i, c); ok {
			if pending {
				word = append(word, m.unk)
				pending = false
			}
			word = append(word, id)
			continue
		}
		if m.byteFallback && m.hasBytes(c) {
			for k := range len(c) {
				word = append(word, m.byteIDs[c[k]])
			}
			continue
		}
		if pending && !m.fuseUnk {
			word = append(word, m.unk)
		}
		pending = m.unk >= 0
	}
	if pending {
		word = append(word, m.unk)
	}
	return word
}

// hasBytes tells whether all bytes of a character have a token, into which an unknown one can fall back.
func (m *bpe) hasBytes(c string) bool {
	for i := range len(c) {
		if m.byteIDs[c[i]] < 0 {
			return false
		}
	}
	return true
}
