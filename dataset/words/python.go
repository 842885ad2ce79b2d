package words

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Strip is Python's str.strip.
func Strip(s string) string { return strings.TrimFunc(s, IsSpace) }

// IsSpace is Python's str.isspace of one character.
func IsSpace(r rune) bool {
	if r < utf8.RuneSelf {
		return r == ' ' || r >= 9 && r <= 13 || r >= 0x1c && r <= 0x1f
	}
	return table().of(r)&isSpace != 0
}

// IsLetter is Python's str.isalpha of one character.
func IsLetter(r rune) bool { return table().of(r)&isLetter != 0 }

// IsWord says whether a character is one that Python's patterns call \w.
func IsWord(r rune) bool { return table().of(r)&isWord != 0 }

// IsSymbol says whether Datatrove's filters take a character for punctuation (PUNCTUATION_SET).
func IsSymbol(r rune) bool { return table().of(r)&(isBlank|isTerminal) != 0 }

// IsTerminal says whether a character ends a sentence in some script (TERMINAL_PUNCTUATION).
func IsTerminal(r rune) bool { return table().of(r)&isTerminal != 0 }

// Fields is Python's str.split without arguments.
func Fields(s string) []string { return strings.FieldsFunc(s, IsSpace) }

// Lines is Python's str.splitlines.
func Lines(s string) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); {
		n := lineEnd(s[i:])
		if n == 0 {
			i++
			continue
		}
		out = append(out, s[start:i])
		i += n
		start = i
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

// lineEnd returns the length of the end of a line that s begins with, 0 for none.
func lineEnd(s string) int {
	switch c := s[0]; {
	case c == '\r' && len(s) > 1 && s[1] == '\n':
		return 2
	case c >= '\n' && c <= '\r', c >= 0x1c && c <= 0x1e:
		return 1
	case c == 0xc2 && strings.HasPrefix(s, "\u0085"):
		return 2
	case c == 0xe2 && (strings.HasPrefix(s, "\u2028") || strings.HasPrefix(s, "\u2029")):
		return 3
	}
	return 0
}

// Lower is Python's str.lower, with its two characters for İ and its ς at the end of words.
func Lower(s string) string {
	if !strings.ContainsAny(s, "İΣ") {
		return strings.ToLower(s)
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == 'İ':
			b.WriteString("i̇")
		case r == 'Σ' && finalSigma(s[:i], s[i+len("Σ"):]):
			b.WriteRune('ς')
		default:
			b.WriteString(strings.ToLower(string(r)))
		}
	}
	return b.String()
}

// finalSigma says whether a sigma between two texts ends a word: a letter is in front of it and none behind,
// what Unicode calls case-ignorable aside.
func finalSigma(before, after string) bool {
	for before != "" {
		r, n := utf8.DecodeLastRuneInString(before)
		if !caseIgnorable(r) {
			if !cased(r) {
				return false
			}
			break
		}
		before = before[:len(before)-n]
	}
	if before == "" {
		return false
	}
	for _, r := range after {
		if !caseIgnorable(r) {
			return !cased(r)
		}
	}
	return true
}

// Simplify brings a text into the form in which Datatrove compares texts (simplify_text with its default
// settings): lower case, each number a 0, no punctuation, single blanks, no diacritics.
func Simplify(s string) string {
	s = simplifyNumbers(Lower(s))
	e := table()
	var b strings.Builder
	b.Grow(len(s))
	blank := true // none at the begin
	for _, r := range s {
		if e.of(r)&(isBlank|isSpace) != 0 {
			if !blank {
				b.WriteByte(' ')
			}
			blank = true
			continue
		}
		blank = false
		b.WriteRune(r)
	}
	s = strings.TrimSuffix(b.String(), " ")
	if isASCII(s) {
		return s
	}
	b.Reset()
	for _, r := range norm.NFD.String(s) {
		if e.of(r)&isMark == 0 {
			b.WriteRune(r)
		}
	}
	return Strip(b.String())
}

// isASCII says whether a text has no other characters.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// simplifyNumbers writes 0 for every number, with one decimal separator in it.
func simplifyNumbers(s string) string {
	e := table()
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if e.of(r)&isDigit == 0 {
			b.WriteString(s[i : i+n])
			i += n
			continue
		}
		i += e.digits(s[i:])
		b.WriteByte('0')
		if r, n := utf8.DecodeRuneInString(s[i:]); n > 0 && strings.ContainsRune(".,،٫⎖⎗⎘", r) {
			if d := e.digits(s[i+n:]); d > 0 {
				i += n + d
			}
		}
	}
	return b.String()
}

// digits returns the length of the digits that a text begins with.
func (e *english) digits(s string) (n int) {
	for i, r := range s {
		if e.of(r)&isDigit == 0 {
			return i
		}
		n = i + utf8.RuneLen(r)
	}
	return n
}
