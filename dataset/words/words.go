package words

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Cutter cuts texts. It remembers what it made of chunks that come often, so one serves one goroutine.
type Cutter struct {
	e     *english
	cache map[string][]int32
	ends  []int32 // of the words of the text under work, each with its begin
	from  []int32
}

// cacheMax is how many chunks a Cutter remembers, and cacheBytesMax how long each may be.
const (
	cacheMax      = 1 << 16
	cacheBytesMax = 64
)

// NewCutter returns a Cutter of English text.
func NewCutter() *Cutter { return &Cutter{e: table(), cache: map[string][]int32{}} }

// Words returns the words of a text, punctuation among them and without those that are only space, as
// Datatrove's split_into_words does for English. They share the text's memory.
func (c *Cutter) Words(text string) []string {
	c.cut(text)
	out := make([]string, 0, len(c.ends))
	for i, end := range c.ends {
		if w := Strip(text[c.from[i]:end]); w != "" {
			out = append(out, w)
		}
	}
	return out
}

// Sentences returns how many sentences a text has, as Datatrove's split_into_sentences does for English: a
// text without words counts as one.
func (c *Cutter) Sentences(text string) int { return len(c.SentenceEnds(text)) }

// SentenceEnds returns where the sentences of a text end, in bytes. The last one ends with the text.
func (c *Cutter) SentenceEnds(text string) []int {
	c.cut(text)
	var out []int
	seen := false
	for i, end := range c.ends {
		w := text[c.from[i]:end]
		r, n := utf8.DecodeRuneInString(w)
		mark := n == len(w) && c.e.of(r)&isSentence != 0
		switch {
		case mark:
			seen = true
		case seen && !c.all(w, isPunct):
			out = append(out, int(c.ends[i-1]))
			seen = false
		}
	}
	return append(out, len(text))
}

// all says whether each character of s is in a class.
func (c *Cutter) all(s string, k class) bool {
	for _, r := range s {
		if c.e.of(r)&k == 0 {
			return false
		}
	}
	return true
}

// cut finds the words of a text, with those that are only space.
func (c *Cutter) cut(text string) {
	c.ends, c.from = c.ends[:0], c.from[:0]
	if text == "" {
		return
	}
	start := 0
	first, _ := utf8.DecodeRuneInString(text)
	space := c.e.of(first)&isSpace != 0
	for i, r := range text {
		if (c.e.of(r)&isSpace != 0) == space {
			continue
		}
		if start < i {
			c.add(text, start, i)
		}
		start = i
		if r == ' ' {
			start = i + 1
		}
		space = !space
	}
	if start < len(text) {
		c.add(text, start, len(text))
	}
	c.join(text)
}

// add appends the words of the chunk from from to to.
func (c *Cutter) add(text string, from, to int) {
	chunk := text[from:to]
	lengths, ok := c.cache[chunk]
	if !ok {
		lengths = c.e.chunk(chunk)
		if len(chunk) <= cacheBytesMax {
			if len(c.cache) >= cacheMax {
				clear(c.cache)
			}
			c.cache[strings.Clone(chunk)] = lengths
		}
	}
	at := int32(from)
	for _, n := range lengths {
		c.from = append(c.from, at)
		at += n
		c.ends = append(c.ends, at)
	}
}

// rule is the cut of a chunk that has a rule of its own.
func (e *english) rule(s string) ([]int32, bool) {
	if len(s) > e.ruleMax {
		return nil, false
	}
	l, ok := e.rules[s]
	return l, ok
}

// chunk cuts text without space in it (or of space alone) into words, as lengths in bytes.
func (e *english) chunk(s string) []int32 {
	if l, ok := e.rule(s); ok {
		return l
	}
	var out, tail []int32
	for s != "" {
		if _, ok := e.rule(s); ok {
			break
		}
		p := e.prefix(s)
		if _, ok := e.rule(s[p:]); ok && p > 0 {
			out = append(out, int32(p))
			s = s[p:]
			break
		}
		n := e.suffix(s[p:])
		if n > 0 {
			if _, ok := e.rule(s[:len(s)-n]); ok {
				tail = append(tail, int32(n))
				s = s[:len(s)-n]
				break
			}
		}
		if p == 0 && n == 0 {
			break
		}
		if p > 0 {
			out = append(out, int32(p))
		}
		if n > 0 {
			tail = append(tail, int32(n))
		}
		s = s[p : len(s)-n]
	}
	out = e.middle(s, out)
	slices.Reverse(tail)
	return append(out, tail...)
}

// middle appends the words of what affixes have left of a chunk.
func (e *english) middle(s string, out []int32) []int32 {
	if s == "" {
		return out
	}
	if l, ok := e.rule(s); ok {
		return append(out, l...)
	}
	if isAddress(s) {
		return append(out, int32(len(s)))
	}
	return e.infixes(s, out)
}
