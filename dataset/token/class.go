package token

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
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

// unicodeFile lists classes of characters as the Python library `tokenizers` 0.23.3 sees them: Unicode 16 in
// regular expressions, 17 where it asks Rust, and an older version for Punctuation. Go's own tables are
// those of Unicode 15. It is made by bench/golden/token_unicode.py, which says how it is written.
//
//go:embed unicode.txt
var unicodeFile string

// unicodeTables are the classes of unicodeFile by name: general categories, scripts, `\w`, `\s`, `\d`, and
// the characters that some pre-tokenizers cut at.
var unicodeTables = sync.OnceValue(func() map[string]*unicode.RangeTable {
	out := map[string]*unicode.RangeTable{}
	for line := range strings.Lines(unicodeFile) {
		words := strings.Fields(line)
		if words[0] == lowerLine {
			continue
		}
		t, end := &unicode.RangeTable{}, uint64(0)
		for _, w := range words[1:] {
			from, more, _ := strings.Cut(w, "+")
			a, err := strconv.ParseUint(from, 16, 32)
			n := uint64(0)
			if more != "" && err == nil {
				n, err = strconv.ParseUint(more, 16, 32)
			}
			if err != nil {
				panic(fmt.Sprintf("token: unicode.txt: %s: %v", words[0], err))
			}
			end += a
			t.R32 = append(t.R32, unicode.Range32{Lo: uint32(end), Hi: uint32(end + n), Stride: 1})
			end += n
		}
		for len(t.R32) > 0 && t.R32[0].Hi < 1<<16 { // as unicode.Is wants them
			t.R16 = append(t.R16, unicode.Range16{Lo: uint16(t.R32[0].Lo), Hi: uint16(t.R32[0].Hi), Stride: 1})
			if t.R32[0].Hi <= unicode.MaxLatin1 {
				t.LatinOffset++
			}
			t.R32 = t.R32[1:]
		}
		if len(t.R32) > 0 && t.R32[0].Lo < 1<<16 {
			t.R16 = append(t.R16, unicode.Range16{Lo: uint16(t.R32[0].Lo), Hi: 0xffff, Stride: 1})
			t.R32[0].Lo = 1 << 16
		}
		out[words[0]] = t
	}
	return out
})

// lowerLine is the line of unicodeFile with lower cases that Go's tables do not know.
const lowerLine = "lower"

// laterLower are those lower cases.
var laterLower = sync.OnceValue(func() map[rune]rune {
	out := map[rune]rune{}
	for line := range strings.Lines(unicodeFile) {
		words := strings.Fields(line)
		if words[0] != lowerLine {
			continue
		}
		for _, w := range words[1:] {
			var upper, lower rune
			if _, err := fmt.Sscanf(w, "%x=%x", &upper, &lower); err != nil {
				panic(fmt.Sprintf("token: unicode.txt: %s: %v", w, err))
			}
			out[upper] = lower
		}
	}
	return out
})

// plane is a set of characters of the basic multilingual plane.
type plane [1 << 16 / 64]uint64

// planes are the sets of classes that were asked for, by name.
var planes sync.Map

// inClass returns the test of a class of unicodeFile.
func inClass(name string) func(r rune) bool {
	t := unicodeTables()[name]
	if t == nil {
		panic("token: no class of characters is named " + name)
	}
	kept, ok := planes.Load(name)
	if !ok {
		p := &plane{}
		for _, c := range t.R16 {
			for x := uint32(c.Lo); x <= uint32(c.Hi); x++ {
				p[x/64] |= 1 << (x % 64)
			}
		}
		kept, _ = planes.LoadOrStore(name, p)
	}
	p := kept.(*plane)
	return func(r rune) bool {
		if uint32(r) < 1<<16 {
			return p[uint16(r)/64]>>(r%64)&1 == 1
		}
		return unicode.Is(t, r)
	}
}

// classTables lists which tables give which class.
var classTables = sync.OnceValue(func() []classed {
	t := unicodeTables()
	return []classed{{t["L"], letter}, {t["N"], number}, {t["\\s"], space}, {t["M"], mark}}
})

type classed struct {
	table *unicode.RangeTable
	class uint8
}

// classTable holds the classes of the basic multilingual plane, filled once.
var classTable = sync.OnceValue(func() *[1 << 16]uint8 {
	t := &[1 << 16]uint8{}
	for _, c := range classTables() {
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
	for _, e := range classTables() {
		if unicode.Is(e.table, r) {
			c |= e.class
		}
	}
	return c
}
