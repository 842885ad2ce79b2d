package token

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalizer maps a stretch of text to its normal form.
type normalizer func(string) string

// parseNormalizer returns nil where the file has no normalizer.
func parseNormalizer(raw json.RawMessage) (normalizer, error) {
	leaves, err := flatten(raw, "normalizer", "normalizers", 0)
	if err != nil || len(leaves) == 0 {
		return nil, err
	}
	chain := make([]normalizer, len(leaves))
	for i, l := range leaves {
		if chain[i], err = parseOneNormalizer(l); err != nil {
			return nil, fmt.Errorf("tokenizer.json: normalizer: %w", err)
		}
	}
	if len(chain) == 1 {
		return chain[0], nil
	}
	return func(s string) string {
		for _, n := range chain {
			s = n(s)
		}
		return s
	}, nil
}

type normalizerFile struct {
	Prepend    string  `json:"prepend"`
	Pattern    pattern `json:"pattern"`
	Content    string  `json:"content"`
	StripLeft  bool    `json:"strip_left"`
	StripRight bool    `json:"strip_right"`
	CharsMap   []byte  `json:"precompiled_charsmap"`
	bertFile
}

var unicodeForms = map[string]norm.Form{"NFC": norm.NFC, "NFD": norm.NFD, "NFKC": norm.NFKC, "NFKD": norm.NFKD}

// parseOneNormalizer reads one step that changes text before it is cut; an unknown kind is refused.
func parseOneNormalizer(raw json.RawMessage) (normalizer, error) {
	var f normalizerFile
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, err
	}
	typ, err := typeOf(raw)
	if err != nil {
		return nil, err
	}
	if form, ok := unicodeForms[typ]; ok {
		return unicodeForm(form), nil
	}
	switch typ {
	case "Lowercase":
		return lowercase, nil
	case "Strip":
		return func(s string) string { return strip(s, f.StripLeft, f.StripRight) }, nil
	case "Prepend":
		return func(s string) string { return prepend(f.Prepend, s) }, nil
	case "Replace":
		return newReplacer(f.Pattern, f.Content)
	case "Precompiled":
		p, err := newPrecompiled(f.CharsMap)
		if err != nil {
			return nil, err
		}
		return p.normalize, nil
	case "BertNormalizer":
		return f.bertFile.normalizer(), nil
	case "StripAccents":
		return func(s string) string { return without(s, "StripAccents") }, nil
	case "Nmt":
		return nmt, nil
	case "ByteLevel":
		return nil, fmt.Errorf("ByteLevel is supported as a pre-tokenizer only")
	}
	return nil, fmt.Errorf("type %q is not supported", typ)
}

// prepend leaves empty text empty.
func prepend(prefix, s string) string {
	if s == "" {
		return s
	}
	return prefix + s
}

func strip(s string, left, right bool) string {
	if left {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
	}
	if right {
		s = strings.TrimRightFunc(s, unicode.IsSpace)
	}
	return s
}

// lowercase lowers character by character. U+0130 is the only character whose lower case is two.
func lowercase(s string) string {
	s = strings.ReplaceAll(strings.ToLower(strings.ReplaceAll(s, "\u0130", "\u0130\x00")), "i\x00", "i\u0307")
	later := laterLower()
	return strings.Map(func(r rune) rune {
		if l, ok := later[r]; ok && r >= utf8.RuneSelf {
			return l
		}
		return r
	}, s)
}

// newReplacer replaces every match of p by content, taken literally.
func newReplacer(p pattern, content string) (normalizer, error) {
	if p.String != nil {
		from := *p.String
		if from == "" {
			return func(s string) string { return s }, nil
		}
		return func(s string) string { return strings.ReplaceAll(s, from, content) }, nil
	}
	if p.Regex == nil {
		return nil, fmt.Errorf("pattern is neither String nor Regex")
	}
	find, err := compileRegex(*p.Regex)
	if err != nil {
		return nil, err
	}
	return func(s string) string {
		var out strings.Builder
		done := 0
		find(s, func(start, stop int) {
			out.WriteString(s[done:start])
			out.WriteString(content)
			done = stop
		})
		out.WriteString(s[done:])
		return out.String()
	}, nil
}

// lossyUTF8 replaces each maximal part of b that cannot begin or continue a UTF-8 sequence by U+FFFD: the
// "substitution of maximal subparts" of the Unicode standard (section 3.9), which Rust and Python follow.
func lossyUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b) + 8)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			size = subpart(b)
		}
		if r == utf8.RuneError {
			out.WriteRune(utf8.RuneError)
		} else {
			out.Write(b[:size])
		}
		b = b[size:]
	}
	return out.String()
}

// subpart returns the length of the longest prefix of b that starts a well-formed sequence, at least 1.
func subpart(b []byte) int {
	lo, hi, need := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		need = 1
	case c >= 0xe0 && c <= 0xef:
		need = 2
		if c == 0xe0 {
			lo = 0xa0
		} else if c == 0xed {
			hi = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		need = 3
		if c == 0xf0 {
			lo = 0x90
		} else if c == 0xf4 {
			hi = 0x8f
		}
	}
	n := 1
	for ; n <= need && n < len(b) && b[n] >= lo && b[n] <= hi; n++ {
		lo, hi = 0x80, 0xbf
	}
	return n
}
