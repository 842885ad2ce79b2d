package grammar

import (
	"slices"
	"unicode/utf8"
)

// lasts are the largest characters of one, two, three and four bytes of UTF-8.
var lasts = [4]rune{0x7f, 0x7ff, 0xffff, utf8.MaxRune}

// class compiles ranges of characters as their bytes in UTF-8. Surrogates are no characters.
func (b *builder) class(ranges [][2]rune, next int32) int32 {
	at := int32(-1)
	add := func(entry int32) {
		if at >= 0 {
			entry = b.emit(inst{op: opSplit, to: entry, also: at})
		}
		at = entry
	}
	for _, r := range ranges {
		for _, p := range [][2]rune{{0, 0xd7ff}, {0xe000, utf8.MaxRune}} {
			lo, hi := max(r[0], p[0]), min(r[1], p[1])
			for _, last := range lasts {
				if lo <= hi && lo <= last {
					b.bytes(lo, min(hi, last), next, add)
					lo = last + 1
				}
			}
		}
	}
	if at < 0 {
		return b.emit(inst{op: opFail})
	}
	return at
}

// bytes compiles a range of characters of equally many bytes: cut where a byte changes while those behind it do
// not run over all their values.
func (b *builder) bytes(lo, hi rune, next int32, add func(entry int32)) {
	n := utf8.RuneLen(lo)
	for i := 1; i < n; i++ {
		rest := rune(1)<<(6*i) - 1
		if lo&^rest == hi&^rest {
			continue
		}
		if lo&rest != 0 {
			b.bytes(lo, lo|rest, next, add)
			b.bytes((lo|rest)+1, hi, next, add)
			return
		}
		if hi&rest != rest {
			b.bytes(lo, hi&^rest-1, next, add)
			b.bytes(hi&^rest, hi, next, add)
			return
		}
	}
	var x, y [utf8.UTFMax]byte
	utf8.EncodeRune(x[:], lo)
	utf8.EncodeRune(y[:], hi)
	for i := n - 1; i >= 0; i-- {
		next = b.emit(inst{op: opByte, lo: x[i], hi: y[i], to: next})
	}
	add(next)
}

// others are the ranges of all characters that are in none of some ranges.
func others(ranges [][2]rune) (out [][2]rune) {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b [2]rune) int { return int(a[0] - b[0]) })
	lo := rune(0)
	for _, r := range ranges {
		if r[0] > lo {
			out = append(out, [2]rune{lo, r[0] - 1})
		}
		lo = max(lo, r[1]+1)
	}
	if lo <= utf8.MaxRune {
		out = append(out, [2]rune{lo, utf8.MaxRune})
	}
	return out
}
