package token

import (
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// unigram is the model of SentencePiece's unigram language model (Kudo, arXiv:1804.10959): of all ways to
// cut a piece into tokens it takes the likeliest, found with the Viterbi algorithm.
type unigram struct {
	words        matcher
	scores       []float64
	ids          map[string]int32
	unk          int32 // -1: none
	unkScore     float64
	byteFallback bool
	byteIDs      [256]int32
	single       bool // sums are rounded to float32, as in SentencePiece; the library has float64
}

// unkPenalty is how much less likely an unknown character is than the least likely token.
const unkPenalty = 10

// newUnigram reads a unigram model. An unknown character gets a score below that of all pieces, as in SentencePiece.
func newUnigram(f *modelFile) (*unigram, error) {
	m := &unigram{ids: f.Vocab, unk: -1, byteFallback: f.ByteFallback, unkScore: math.Inf(1), single: f.Single}
	if f.UnkID != nil {
		if m.unk = *f.UnkID; m.unk < 0 || int(m.unk) >= len(f.Pieces) {
			return nil, fmt.Errorf("tokenizer.json: model.unk_id %d is outside of the vocabulary of %d",
				m.unk, len(f.Pieces))
		}
	}
	if f.UnkID == nil && !f.ByteFallback {
		return nil, fmt.Errorf("tokenizer.json: model.unk_id is not given: there is no token for unknown characters")
	}
	for i, p := range f.Pieces {
		if math.IsNaN(p.Score) || math.IsInf(p.Score, 0) {
			return nil, fmt.Errorf("tokenizer.json: model.vocab[%d] has the score %g", i, p.Score)
		}
		m.scores = append(m.scores, p.Score)
		if p.hidden {
			continue
		}
		m.words.add(p.Piece, int32(i))
		m.unkScore = min(m.unkScore, p.Score)
	}
	m.unkScore -= unkPenalty
	for b := range m.byteIDs {
		m.byteIDs[b] = -1
		if id, ok := f.Vocab[fmt.Sprintf("<0x%02X>", b)]; ok {
			m.byteIDs[b] = id
		}
	}
	return m, nil
}

// reached is the best way to a place of the piece.
type reached struct {
	score float64
	from  int // where its last token begins; -1: the place was not reached
	id    int32
}

// appendIDs implements model. Neighbouring unknown characters are one unknown token.
func (m *unigram) appendIDs(s *scratch, out []int32, piece string) []int32 {
	if ids, ok := s.cached(piece); ok {
		return append(out, ids...)
	}
	best := make([]reached, len(piece)+1)
	for i := range best {
		best[i].from = -1
	}
	best[0].from = 0
	for at := 0; at < len(piece); {
		_, size := utf8.DecodeRuneInString(piece[at:])
		single := false
		m.words.each(piece, at, func(stop int, id int32) {
			best[stop].reach(at, id, m.sum(best[at].score, m.scores[id]))
			single = single || stop == at+size
		})
		if !single {
			best[at+size].reach(at, m.unk, m.sum(best[at].score, m.unkScore))
		}
		at += size
	}
	from := len(out)
	unknownEnd := -1 // of a row of unknown characters
	flush := func(start int) {
		if unknownEnd >= 0 {
			out = m.appendUnknown(out, piece[start:unknownEnd])
			unknownEnd = -1
		}
	}
	for end := len(piece); end > 0; end = best[end].from {
		if best[end].id != m.unk {
			flush(end)
			out = append(out, best[end].id)
		} else if unknownEnd < 0 {
			unknownEnd = end
		}
	}
	flush(0)
	slices.Reverse(out[from:])
	s.keep(piece, out[from:])
	return out
}

// sum adds scores, in float32 where the original does, because ties depend on it.
func (m *unigram) sum(a, b float64) float64 {
	if m.single {
		return float64(float32(a) + float32(b))
	}
	return a + b
}

// reach keeps the better of two ways to the same place; of equal ones the first stays.
func (r *reached) reach(from int, id int32, score float64) {
	if r.from < 0 || score > r.score {
		*r = reached{score, from, id}
	}
}

// appendUnknown appends the ids of text that is not in the vocabulary, the last one first.
func (m *unigram) appendUnknown(out []int32, text string) []int32 {
	if id, ok := m.ids[text]; ok { // the unknown token itself
		return append(out, id)
	}
	if m.byteFallback {
		from := len(out)
		for i := len(text) - 1; i >= 0; i-- {
			if m.byteIDs[text[i]] < 0 {
				out = out[:from]
				break
			}
			out = append(out, m.byteIDs[text[i]])
		}
		if len(out) > from {
			return out
		}
	}
	if m.unk < 0 {
		return out
	}
	return append(out, m.unk)
}

// each yields the ends of all words that begin at a place, the shortest first.
func (m *matcher) each(text string, from int, yield func(stop int, id int32)) {
	if m.nodes == nil {
		return
	}
	at := int32(0)
	for i := from; i < len(text); i++ {
		next, ok := m.nodes[at].next[text[i]]
		if !ok {
			return
		}
		if at = next; m.nodes[at].id >= 0 {
			yield(i+1, m.nodes[at].id)
		}
	}
}
