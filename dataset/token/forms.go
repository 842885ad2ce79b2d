package token

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// combiningJoiner is what golang.org/x/text puts into runs of over 30 combining marks, as the Stream-Safe
// Text Format of UAX #15 asks for. The normal forms themselves have no such limit.
const combiningJoiner = "\u034f"

// wholeNFD and wholeNFKD are the characters that the library, whose tables of normal forms are older than
// Go's, does not decompose.
var (
	wholeNFD  = &unicode.RangeTable{R32: []unicode.Range32{{Lo: 0x11938, Hi: 0x11938, Stride: 1}}}
	wholeNFKD = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0x32ff, Hi: 0x32ff, Stride: 1},
		{Lo: 0xa7f2, Hi: 0xa7f4, Stride: 1}, {Lo: 0xab69, Hi: 0xab69, Stride: 1}},
		R32: []unicode.Range32{{Lo: 0x10781, Hi: 0x10785, Stride: 1}, {Lo: 0x10787, Hi: 0x107b0, Stride: 1},
			{Lo: 0x107b2, Hi: 0x107ba, Stride: 1},
			{Lo: 0x11938, Hi: 0x11938, Stride: 1}, {Lo: 0x1e030, Hi: 0x1e06d, Stride: 1},
			{Lo: 0x1f16c, Hi: 0x1f16c, Stride: 1}, {Lo: 0x1fbf0, Hi: 0x1fbf9, Stride: 1}}}
)

// unicodeForm is a normal form of Unicode.
func unicodeForm(form norm.Form) normalizer {
	whole := map[norm.Form]*unicode.RangeTable{norm.NFD: wholeNFD, norm.NFKD: wholeNFKD,
		norm.NFKC: wholeNFKD}[form]
	return func(s string) string {
		if form.IsNormalString(s) {
			return s
		}
		if whole == nil {
			return formOf(form, s)
		}
		var out strings.Builder
		for {
			at := strings.IndexFunc(s, func(r rune) bool { return r >= 0x32ff && unicode.Is(whole, r) })
			if at < 0 {
				return out.String() + formOf(form, s)
			}
			_, size := utf8.DecodeRuneInString(s[at:])
			out.WriteString(formOf(form, s[:at]) + s[at:at+size])
			s = s[at+size:]
		}
	}
}

func formOf(form norm.Form, s string) string {
	out := form.String(s)
	if strings.Count(out, combiningJoiner) == strings.Count(s, combiningJoiner) {
		return out
	}
	return longForm(form, s)
}

// longForm is a normal form by the definition of UAX #15: all characters are decomposed, marks between two
// starters sorted by their class, and pairs composed again.
func longForm(form norm.Form, s string) string {
	split, compose := norm.NFD, form == norm.NFC || form == norm.NFKC
	if form == norm.NFKC || form == norm.NFKD {
		split = norm.NFKD
	}
	var runes []rune
	for _, r := range s {
		runes = append(runes, []rune(split.String(string(r)))...)
	}
	for i := 0; i < len(runes); i++ {
		end := i
		for end < len(runes) && classOfMark(runes[end]) != 0 {
			end++
		}
		slices.SortStableFunc(runes[i:end], func(a, b rune) int {
			return int(classOfMark(a)) - int(classOfMark(b))
		})
		i = max(i, end-1)
	}
	if compose {
		runes = composed(runes)
	}
	return string(runes)
}

func classOfMark(r rune) uint8 {
	var b [utf8.UTFMax]byte
	return norm.NFD.Properties(b[:utf8.EncodeRune(b[:], r)]).CCC()
}

// composed joins each starter with what follows it, unless something of the same or a higher class stands
// between.
func composed(runes []rune) []rune {
	out := runes[:0:0]
	starter, last := -1, uint8(0)
	for _, r := range runes {
		class := classOfMark(r)
		if starter >= 0 && (len(out) == starter+1 || last < class) {
			if pair := []rune(norm.NFC.String(string([]rune{out[starter], r}))); len(pair) == 1 {
				out[starter] = pair[0]
				continue
			}
		}
		if last = class; class == 0 {
			starter = len(out)
		}
		out = append(out, r)
	}
	return out
}
