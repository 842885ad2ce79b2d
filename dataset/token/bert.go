package token

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// bertFile is the library's BertNormalizer. What is not said is on, but for accents, which go with lowercase.
type bertFile struct {
	CleanText *bool `json:"clean_text"`
	Chinese   *bool `json:"handle_chinese_chars"`
	Accents   *bool `json:"strip_accents"`
	Lowercase *bool `json:"lowercase"`
}

func isOn(b *bool) bool { return b == nil || *b }

// normalizer cleans text as BERT does: control characters out, spaces around Chinese characters,
// accents off and lower case, each if the file wants it.
func (f bertFile) normalizer() normalizer {
	drop, blank, cjk := inClass("bert_drop"), inClass("bert_space"), inClass("bert_cjk")
	nfd := unicodeForm(norm.NFD)
	return func(s string) string {
		if isOn(f.CleanText) {
			s = strings.Map(func(r rune) rune {
				if drop(r) {
					return -1
				}
				if blank(r) {
					return ' '
				}
				return r
			}, s)
		}
		if isOn(f.Chinese) {
			var out strings.Builder
			for _, r := range s {
				if cjk(r) {
					out.WriteString(" " + string(r) + " ")
				} else {
					out.WriteRune(r)
				}
			}
			s = out.String()
		}
		if f.Accents == nil && isOn(f.Lowercase) || f.Accents != nil && *f.Accents {
			s = without(nfd(s), "accents")
		}
		if isOn(f.Lowercase) {
			s = lowercase(s)
		}
		return s
	}
}

// without drops the characters of a class.
func without(s, class string) string {
	in := inClass(class)
	return strings.Map(func(r rune) rune {
		if in(r) {
			return -1
		}
		return r
	}, s)
}

// nmt drops control characters and makes spaces of blank and invisible ones, as SentencePiece's nmt rules do.
func nmt(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 1 && r <= 8, r == 0xb, r >= 0xe && r <= 0x1f, r == 0x7f, r == 0x8f, r == 0x9f:
			return -1
		case r == '\t', r == '\n', r == 0xc, r == '\r', r == 0x1680, r >= 0x200b && r <= 0x200f, r == 0x2028,
			r == 0x2029, r == 0x2581, r == 0xfeff, r == 0xfffd:
			return ' '
		}
		return r
	}, s)
}
