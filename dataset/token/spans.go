package token

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// encodeSpans returns the ids of text and which of them overlap one of the byte ranges.
func (t *Tokenizer) encodeSpans(text string, spans [][2]int) ([]int32, []bool) {
	c := &spanCoder{t: t, s: t.scratch.Get().(*scratch)}
	for _, s := range spans {
		c.bounds = append(c.bounds, s[0], s[1])
	}
	c.at = slices.Clone(c.bounds)
	offset := 0
	t.added.find(&t.added.raw, text, true, func(p part) {
		size := len(p.text)
		if p.id >= 0 {
			c.added(p, offset)
		} else {
			c.normalized(p, offset)
		}
		offset += size
	})
	c.moveBounds(offset, offset+1, func(b int) int { return c.pos })
	mask := make([]bool, len(c.ids))
	for i := range mask {
		for k := 0; k < len(c.at); k += 2 {
			mask[i] = mask[i] || c.ends[i] > c.at[k] && c.starts[i] < c.at[k+1]
		}
	}
	c.s.trim()
	t.scratch.Put(c.s)
	return c.ids, mask
}

// spanCoder encodes and follows where each token lies in the normalized text, and where the bounds went there.
type spanCoder struct {
	t            *Tokenizer
	s            *scratch
	ids          []int32
	starts, ends []int // of each token, in normalized text
	bounds, at   []int // in the given and in the normalized text
	pos          int   // in normalized text
}

// moveBounds places the bounds that lie in [from, to) of the given text.
func (c *spanCoder) moveBounds(from, to int, place func(b int) int) {
	for k, b := range c.bounds {
		if b >= from && b < to {
			c.at[k] = place(b)
		}
	}
}

func (c *spanCoder) emit(id int32, size int) {
	c.ids = append(c.ids, id)
	c.starts = append(c.starts, c.pos)
	c.pos += size
	// a prefix space goes with what follows it
	c.ends = append(c.ends, max(c.pos, c.starts[len(c.starts)-1]+1))
}

// added handles an added token, which stands at offset of the given text.
func (c *spanCoder) added(p part, offset int) {
	c.moveBounds(offset, offset+len(p.text), func(b int) int { return c.pos + b - offset })
	c.emit(p.id, len(p.text))
}

// normalized handles text between added tokens.
func (c *spanCoder) normalized(p part, offset int) {
	n := func(s string) string { return s }
	if c.t.normalize != nil {
		n = c.t.normalize
	}
	start, raw := c.pos, p.text
	c.moveBounds(offset, offset+len(raw), func(b int) int { return start + len(n(raw[:b-offset])) })
	whole := n(raw)
	c.t.added.find(&c.t.added.normalized, whole, p.first, func(q part) {
		if q.id >= 0 {
			c.emit(q.id, len(q.text))
			return
		}
		c.stretch(q)
	})
	c.pos = start + len(whole)
}

// stretch encodes text without added tokens, piece by piece: what a pre-tokenizer drops (white space) belongs
// to no token.
func (c *spanCoder) stretch(q part) {
	end, rest := c.pos+len(q.text), q.text
	var cut func(level int, text string, first bool)
	cut = func(level int, text string, first bool) {
		if text == "" {
			return
		}
		if level < len(c.t.split) {
			c.t.split[level].split(text, first, func(p string, first bool) { cut(level+1, p, first) })
			return
		}
		at, size := c.t.find(text, rest)
		c.pos, rest = c.pos+at, rest[at:]
		c.s.out = c.t.model.appendIDs(c.s, c.s.out[:0], text)
		c.place(c.s.out, rest, size)
		rest = rest[size:]
	}
	cut(0, q.text, q.first)
	c.pos = end
}

// find tells where a piece stands in the text that is left, and how many bytes of it it is: the marks of
// Metaspace are spaces there, and a space in front may be none.
func (t *Tokenizer) find(piece, rest string) (at, size int) {
	forms := []string{piece}
	if m := t.metaspace(); m != nil {
		forms = []string{strings.ReplaceAll(piece, m.mark, " "), piece}
		if t.split[0] != splitter(m) { // words come without the spaces around them
			forms[0] = strings.TrimPrefix(forms[0], " ")
		}
	}
	at = -1
	for _, f := range forms {
		for _, f := range []string{f, strings.TrimPrefix(f, " ")} {
			if k := strings.Index(rest, f); k >= 0 && (at < 0 || k < at) {
				at, size = k, len(f)
			}
		}
	}
	if at >= 0 {
		return at, size
	}
	return 0, min(len(forms[0]), len(rest))
}

// metaspace is the pre-tokenizer that marks spaces, nil for none.
func (t *Tokenizer) metaspace() *metaspace {
	for _, s := range t.split {
		if m, ok := s.(*metaspace); ok {
			return m
		}
	}
	return nil
}

// place emits the ids of a piece of size bytes, which begins rest. A space that the first token has and the piece has
// not was put in front. A token whose text is not in the piece stands for what is unknown, up to the next one's text;
// what is dropped before a token belongs to none.
func (c *spanCoder) place(ids []int32, rest string, size int) {
	rest, end, unknown := rest[:size], c.pos+size, false
	for k, id := range ids {
		text := c.t.surface(id)
		if short := strings.TrimPrefix(text, " "); k == 0 && !strings.HasPrefix(rest, text) && strings.HasPrefix(rest, short) {
			text = short
		}
		at, n := strings.Index(rest, text), len(text)
		if at >= 0 && unknown {
			c.ends[len(c.ends)-1] += at
		}
		if unknown = at < 0; unknown {
			_, n = utf8.DecodeRuneInString(rest)
			at = 0
		}
		c.pos += at
		c.emit(id, n)
		rest = rest[at+n:]
	}
	if c.pos = end; unknown {
		c.ends[len(c.ends)-1] = end
	}
}

// surface is the normalized text that a token stands for. A mark of Metaspace is a space.
func (t *Tokenizer) surface(id int32) string {
	tok := t.tokens[id]
	if t.byteLevel {
		return string(rawBytes(tok))
	}
	if b, ok := fallbackByte(tok); ok && t.byteFallback {
		return string([]byte{b})
	}
	if m := t.metaspace(); m != nil {
		return strings.ReplaceAll(tok, m.mark, " ")
	}
	if m, ok := t.model.(*wordPiece); ok {
		tok = strings.TrimPrefix(tok, m.prefix)
	}
	return tok
}
