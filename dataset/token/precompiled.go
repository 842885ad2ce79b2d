package token

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// precompiled is the table by which SentencePiece normalizes text: a trie of what is replaced, as the double
// array of the Darts library, and the replacements. Layout, little endian: bytes of the trie (uint32), its
// units (uint32 each), and texts that each end with a zero byte.
type precompiled struct {
	trie  []uint32
	texts []byte
}

// newPrecompiled reads SentencePiece's compiled normalization: the size of a trie, the trie, and
// the texts that it leads to.
func newPrecompiled(b []byte) (*precompiled, error) {
	p := &precompiled{}
	if len(b) < 4 {
		return nil, errors.New("there is no precompiled_charsmap")
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if b = b[4:]; n > int64(len(b)) || n%4 != 0 {
		return nil, errors.New("precompiled_charsmap: the trie does not fit")
	}
	p.trie = make([]uint32, n/4)
	for i := range p.trie {
		p.trie[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	p.texts = b[n:]
	return p, nil
}

// normalize replaces whole graphemes of up to five bytes, else characters: the library's order.
func (p *precompiled) normalize(s string) string {
	var out strings.Builder
	state := -1
	for len(s) > 0 {
		var grapheme string
		grapheme, s, _, state = uniseg.FirstGraphemeClusterInString(s, state)
		if len(grapheme) < 6 {
			if to, ok := p.replace(grapheme); ok {
				out.WriteString(to)
				continue
			}
		}
		for len(grapheme) > 0 {
			_, size := utf8.DecodeRuneInString(grapheme)
			if to, ok := p.replace(grapheme[:size]); ok {
				out.WriteString(to)
			} else {
				out.WriteString(grapheme[:size])
			}
			grapheme = grapheme[size:]
		}
	}
	return out.String()
}

// replace returns what stands for the shortest prefix of a text that the table has.
func (p *precompiled) replace(s string) (to string, ok bool) {
	p.prefixes(s, func(_ int, text string) bool { to, ok = text, true; return false })
	return to, ok
}

// normalizeLongest replaces, from the start on, always the longest text that the table has: what
// SentencePiece itself does.
func (p *precompiled) normalizeLongest(s string) string {
	var out strings.Builder
	for len(s) > 0 {
		_, size := utf8.DecodeRuneInString(s)
		to := s[:size]
		p.prefixes(s, func(n int, text string) bool { size, to = n, text; return true })
		out.WriteString(to)
		s = s[size:]
	}
	return out.String()
}

// prefixes yields the lengths of the prefixes of a text that the table has, and what stands for them,
// the shortest first.
func (p *precompiled) prefixes(s string, yield func(n int, text string) bool) {
	unit, ok := p.unit(0)
	if !ok {
		return
	}
	at := offsetOf(unit)
	for i := 0; i < len(s) && s[i] != 0; i++ {
		at ^= uint32(s[i])
		if unit, ok = p.unit(at); !ok || unit&(1<<31|0xff) != uint32(s[i]) {
			return
		}
		at ^= offsetOf(unit)
		if unit>>8&1 == 0 {
			continue
		}
		value, ok := p.unit(at)
		from := value & (1<<31 - 1)
		if !ok || int64(from) > int64(len(p.texts)) {
			return
		}
		text, _, _ := bytes.Cut(p.texts[from:], []byte{0})
		if !yield(i+1, string(text)) {
			return
		}
	}
}

// unit reads a node of the trie; false outside of it, as in a damaged file.
func (p *precompiled) unit(at uint32) (uint32, bool) {
	if int64(at) >= int64(len(p.trie)) {
		return 0, false
	}
	return p.trie[at], true
}

// offsetOf is where the children of a unit lie.
func offsetOf(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }
