package token

import (
	"slices"
	"strings"
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
		c.place(c.s.out, size)
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

// place emits the ids of a piece of size bytes. Tokens may hold more than the piece: what is over was put in front (a
// prefix space). Where they hold less, because text was unknown or dropped, the last one goes on to the end.
func (c *spanCoder) place(ids []int32, size int) {
	over, end := -size, c.pos+size
	for _, id := range ids {
		over += c.t.sizeOf(id)
	}
	for k, id := range ids {
		n := c.t.sizeOf(id)
		cut := min(max(over, 0), n)
		over -= cut
		if n = min(n-cut, end-c.pos); k == len(ids)-1 {
			n = end - c.pos
		}
		c.emit(id, n)
	}
	c.pos = end
}

// sizeOf is how many bytes of normalized text a token stands for. A mark that Metaspace wrote stands for a
// space; one that was in the text itself counts as one too, which may shift a boundary by a token.
func (t *Tokenizer) sizeOf(id int32) int {
	tok := t.tokens[id]
	if t.byteLevel {
		return len(rawBytes(tok))
	}
	if _, ok := fallbackByte(tok); ok && t.byteFallback {
		return 1
	}
	if m := t.metaspace(); m != nil {
		return len(tok) - strings.Count(tok, m.mark)*(len(m.mark)-1)
	}
	if m, ok := t.model.(*wordPiece); ok {
		tok = strings.TrimPrefix(tok, m.prefix)
	}
	return len(tok)
}
