package cli

import (
	"fmt"
	"io"
	"strings"
)

// visible shows control characters as \x1b in place of sending them: names, events and what jobs write are others'
// words, and a terminal would do what they say.
type visible struct {
	w    io.Writer
	keep string // those that are sent
	c2   bool   // the last byte began a character that may be a control of two bytes
}

// Visible is a writer to a terminal of others' words. Line feeds and tabs are sent, and what keep names.
func Visible(w io.Writer, keep string) io.Writer { return &visible{w: w, keep: "\n\t" + keep} }

// Write implements io.Writer.
func (v *visible) Write(b []byte) (int, error) {
	out := make([]byte, 0, len(b)+1)
	for _, c := range b {
		c1 := v.c2 && c >= 0x80 && c < 0xa0 // of UTF-8: C2 80 to C2 9F
		if v.c2 && !c1 {
			out = append(out, 0xc2)
		}
		switch v.c2 = c == 0xc2; {
		case v.c2:
		case c1, (c < 0x20 || c == 0x7f) && !strings.ContainsRune(v.keep, rune(c)):
			out = fmt.Appendf(out, `\x%02x`, c)
		default:
			out = append(out, c)
		}
	}
	if _, err := v.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}
