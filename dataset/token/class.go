package token

import (
	"sync"
	"unicode"
)

// Classes of characters that the pre-tokenizers' regular expressions tell apart.
const (
	letter  uint8 = 1 << iota // \p{L}
	number                    // \p{N}
	space                     // \s: White_Space
	mark                      // \p{M}
	newline                   // \r and \n
)

// Characters of Unicode 15.1 and 16, which the regular expressions of the Python library know and Go's tables
// (Unicode 15.0) do not. Once Go's tables have them the entries are redundant, never wrong.
var (
	laterLetters = &unicode.RangeTable{
		R16: []unicode.Range16{{0x1c89, 0x1c8a, 1}, {0xa7cb, 0xa7cd, 1}, {0xa7da, 0xa7dc, 1}},
		R32: []unicode.Range32{
			{0x105c0, 0x105f3, 1}, {0x10d4a, 0x10d65, 1}, {0x10d6f, 0x10d85, 1}, {0x10ec2, 0x10ec4, 1}, {0x11380, 0x11389, 1},
			{0x1138b, 0x1138b, 1}, {0x1138e, 0x1138e, 1}, {0x11390, 0x113b5, 1}, {0x113b7, 0x113b7, 1}, {0x113d1, 0x113d1, 1},
			{0x113d3, 0x113d3, 1}, {0x11bc0, 0x11be0, 1}, {0x13460, 0x143fa, 1}, {0x16100, 0x1611d, 1}, {0x16d40, 0x16d6c, 1},
			{0x18cff, 0x18cff, 1}, {0x1e5d0, 0x1e5ed, 1}, {0x1e5f0, 0x1e5f0, 1}, {0x2ebf0, 0x2ee5d, 1},
		},
	}
	laterNumbers = &unicode.RangeTable{
		R32: []unicode.Range32{
			{0x10d40, 0x10d49, 1}, {0x116d0, 0x116e3, 1}, {0x11bf0, 0x11bf9, 1}, {0x16130, 0x16139, 1}, {0x16d70, 0x16d79, 1},
			{0x1ccf0, 0x1ccf9, 1}, {0x1e5f1, 0x1e5fa, 1},
		},
	}
	laterMarks = &unicode.RangeTable{
		R16: []unicode.Range16{{0x897, 0x897, 1}},
		R32: []unicode.Range32{
			{0x10d69, 0x10d6d, 1}, {0x10efc, 0x10efc, 1}, {0x113b8, 0x113c0, 1}, {0x113c2, 0x113c2, 1}, {0x113c5, 0x113c5, 1},
			{0x113c7, 0x113ca, 1}, {0x113cc, 0x113d0, 1}, {0x113d2, 0x113d2, 1}, {0x113e1, 0x113e2, 1}, {0x11f5a, 0x11f5a, 1},
			{0x1611e, 0x1612f, 1}, {0x1e5ee, 0x1e5ef, 1},
		},
	}
)

// classTables lists which tables give which class.
var classTables = []struct {
	table *unicode.RangeTable
	class uint8
}{
	{unicode.L, letter}, {laterLetters, letter},
	{unicode.N, number}, {laterNumbers, number},
	{unicode.White_Space, space},
	{unicode.M, mark}, {laterMarks, mark},
}

// classTable holds the classes of the basic multilingual plane, filled once.
var classTable = sync.OnceValue(func() *[1 << 16]uint8 {
	t := &[1 << 16]uint8{}
	for _, c := range classTables {
		for _, r := range c.table.R16 {
			for x := uint32(r.Lo); x <= uint32(r.Hi); x += uint32(r.Stride) {
				t[x] |= c.class
			}
		}
	}
	t['\r'] |= newline
	t['\n'] |= newline
	return t
})

// classOf returns the classes of r.
func classOf(r rune) uint8 {
	if uint32(r) < 1<<16 {
		return classTable()[r]
	}
	var c uint8
	for _, e := range classTables {
		if c&e.class == 0 && unicode.Is(e.table, r) {
			c |= e.class
		}
	}
	return c
}
