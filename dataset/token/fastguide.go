package token

import "unicode/utf8"

// FASTGuide says which tokens may follow in the answer of a policy, so that it is a chunk of a shape: as many
// characters as the chunk has coefficients, and none that is cut. It is not safe for concurrent use.
type FASTGuide struct {
	f       *FAST
	left    int    // characters that are still to come
	pending []byte // of one that has begun
	ids     []int32
}

// Guide begins an answer for a chunk [time width].
func (f *FAST) Guide(time, width int) *FASTGuide { return &FASTGuide{f: f, left: time * width} }

// Done reports whether the chunk is complete.
func (g *FASTGuide) Done() bool { return g.left == 0 && len(g.pending) == 0 }

// Tokens are those that were taken.
func (g *FASTGuide) Tokens() []int32 { return g.ids }

// Allows reports whether a token may come next.
func (g *FASTGuide) Allows(id int32) bool {
	left, _, ok := g.behind(id)
	return ok && left >= 0
}

// Take adds a token that is allowed.
func (g *FASTGuide) Take(id int32) {
	left, pending, _ := g.behind(id)
	g.left, g.pending, g.ids = left, pending, append(g.ids, id)
}

// behind is what is left and what has begun behind a token. A character that has begun counts as one that is there.
func (g *FASTGuide) behind(id int32) (left int, pending []byte, ok bool) {
	bytes := g.f.bytesOf(id)
	if len(bytes) == 0 {
		return 0, nil, false
	}
	left, pending = g.left, append([]byte(nil), g.pending...)
	for _, b := range bytes {
		if len(pending) == 0 {
			left--
		}
		if pending = append(pending, b); utf8.FullRune(pending) {
			if r, n := utf8.DecodeRune(pending); r == utf8.RuneError || n != len(pending) {
				return 0, nil, false
			}
			pending = pending[:0]
		} else if !utf8.RuneStart(pending[0]) || len(pending) >= utf8.UTFMax {
			return 0, nil, false
		}
	}
	return left, pending, true
}

// bytesOf are the bytes that a token stands for, nil for one that stands for none.
func (f *FAST) bytesOf(id int32) []byte {
	if f.tok.byteTokens == nil || id < 0 || int(id) >= len(f.tok.byteTokens) {
		return nil
	}
	return f.tok.byteTokens[id]
}
