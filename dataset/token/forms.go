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

// laterMarks are the combining marks that came to Unicode behind version 9, whose tables the library's normal
// forms have (the crate unicode-normalization-alignments): to the library they are no marks, so that nothing
// moves past them. bench/golden/token_forms.py tells them.
var laterMarks = &unicode.RangeTable{R16: []unicode.Range16{{Lo: 0x7fd, Hi: 0x7fd, Stride: 1},
	{Lo: 0x898, Hi: 0x89f, Stride: 1}, {Lo: 0x8ca, Hi: 0x8d3, Stride: 1}, {Lo: 0x9fe, Hi: 0x9fe, Stride: 1},
	{Lo: 0xc3c, Hi: 0xc3c, Stride: 1}, {Lo: 0xd3b, Hi: 0xd3c, Stride: 1}, {Lo: 0xeba, Hi: 0xeba, Stride: 1},
	{Lo: 0x1715, Hi: 0x1715, Stride: 1}, {Lo: 0x1abf, Hi: 0x1ace, Stride: 1}, {Lo: 0x1df6, Hi: 0x1dfa, Stride: 1},
	{Lo: 0xa82c, Hi: 0xa82c, Stride: 1}}, R32: []unicode.Range32{{Lo: 0x10d24, Hi: 0x10d27, Stride: 1},
	{Lo: 0x10eab, Hi: 0x10eac, Stride: 1}, {Lo: 0x10efd, Hi: 0x10eff, Stride: 1},
	{Lo: 0x10f46, Hi: 0x10f50, Stride: 1}, {Lo: 0x10f82, Hi: 0x10f85, Stride: 1},
	{Lo: 0x11070, Hi: 0x11070, Stride: 1}, {Lo: 0x1133b, Hi: 0x1133b, Stride: 1},
	{Lo: 0x1145e, Hi: 0x1145e, Stride: 1}, {Lo: 0x11839, Hi: 0x1183a, Stride: 1},
	{Lo: 0x1193d, Hi: 0x1193e, Stride: 1}, {Lo: 0x11943, Hi: 0x11943, Stride: 1},
	{Lo: 0x119e0, Hi: 0x119e0, Stride: 1}, {Lo: 0x11a34, Hi: 0x11a34, Stride: 1},
	{Lo: 0x11a47, Hi: 0x11a47, Stride: 1}, {Lo: 0x11a99, Hi: 0x11a99, Stride: 1},
	{Lo: 0x11d42, Hi: 0x11d42, Stride: 1}, {Lo: 0x11d44, Hi: 0x11d45, Stride: 1},
	{Lo: 0x11d97, Hi: 0x11d97, Stride: 1}, {Lo: 0x11f41, Hi: 0x11f42, Stride: 1},
	{Lo: 0x16ff0, Hi: 0x16ff1, Stride: 1}, {Lo: 0x1e08f, Hi: 0x1e08f, Stride: 1},
	{Lo: 0x1e130, Hi: 0x1e136, Stride: 1}, {Lo: 0x1e2ae, Hi: 0x1e2ae, Stride: 1},
	{Lo: 0x1e2ec, Hi: 0x1e2ef, Stride: 1}, {Lo: 0x1e4ec, Hi: 0x1e4ef, Stride: 1}}}

// laterPair is the second half of a pair that came to Unicode behind version 9 and is not composed.
const laterPair = 0x11930

// unicodeForm is a normal form of Unicode, by the library's tables.
func unicodeForm(form norm.Form) normalizer {
	whole := map[norm.Form]*unicode.RangeTable{norm.NFD: wholeNFD, norm.NFKD: wholeNFKD,
		norm.NFKC: wholeNFKD, norm.NFC: {}}[form]
	inert := func(r rune) bool {
		return r >= 0x7fd && (unicode.Is(laterMarks, r) || unicode.Is(whole, r) || r == laterPair)
	}
	return func(s string) string {
		if form.IsNormalString(s) && strings.IndexFunc(s, inert) < 0 {
			return s
		}
		var out strings.Builder
		for {
			at := strings.IndexFunc(s, inert)
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

// composed joins each starter with what follows it, unless something of the same or a higher class stands between.
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
