package serve

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset/token"
)

// speller says what tokens add to a text, byte by byte.
type speller struct {
	tok          *token.Tokenizer
	once         sync.Once
	first, other [][]byte // as token.Tokenizer.Pieces has them
}

// bytes are what a token adds to a text: as its first token, or behind others. The text of a special token is its name.
func (s *speller) bytes(id int32, first bool) []byte {
	s.once.Do(func() { s.first, s.other = s.tok.Pieces() })
	from := s.other
	if first {
		from = s.first
	}
	if int(id) < len(from) && from[id] != nil {
		return from[id]
	}
	return []byte(s.tok.Decode([]int32{id}, false))
}

// said is a token as its text and bytes. A part of a character has no text, and is written as OpenAI's
// API does: bytes:\xe2\x80.
func (s *speller) said(id int32) (string, []int) {
	raw := s.bytes(id, false)
	bytes := make([]int, len(raw))
	for i, x := range raw {
		bytes[i] = int(x)
	}
	if utf8.Valid(raw) {
		return string(raw), bytes
	}
	var text strings.Builder
	text.WriteString("bytes:")
	for _, x := range raw {
		fmt.Fprintf(&text, `\x%02x`, x)
	}
	return text.String(), bytes
}

// called is said, or the token's number where a request asks for that, as vLLM writes it.
func (s *speller) called(id int32, b *body) (string, []int) {
	text, bytes := s.said(id)
	if or(b.ByID, false) {
		text = fmt.Sprintf("token_id:%d", id)
	}
	return text, bytes
}

// likely are the log-probabilities of tokens by their texts. Of several with one text the first, which is the
// likeliest, has it, and others are named by their number, as vLLM writes it.
func (s *speller) likely(ids []int32, probs []float32, b *body) map[string]float32 {
	out := map[string]float32{}
	seen := map[int32]bool{}
	for i, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		text, _ := s.called(id, b)
		if _, taken := out[text]; taken {
			text = fmt.Sprintf("token_id:%d", id)
		}
		out[text] = probs[i]
	}
	return out
}

// place is where an answer's next token begins in its text, in characters.
type place struct {
	characters int
	part       []byte // of one that is not whole
	begun      bool
}

// pass goes past a token, and gives where it began.
func (p *place) pass(s *speller, id int32) int {
	at := p.characters
	p.part = append(p.part, s.bytes(id, !p.begun)...)
	p.begun = true
	for len(p.part) > 0 && utf8.FullRune(p.part) {
		_, size := utf8.DecodeRune(p.part)
		p.part = p.part[size:]
		p.characters++
	}
	return at
}
