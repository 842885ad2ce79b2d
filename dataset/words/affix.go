package words

import (
	"strings"
	"unicode/utf8"
)

// isASCIIDigit is [0-9] of the rules' patterns.
func isASCIIDigit(b byte) bool { return b >= '0' && b <= '9' }

// prefix returns how many bytes at the begin of a chunk are a word of their own, 0 for none.
func (e *english) prefix(s string) int {
	switch {
	case s == "":
		return 0
	case s[0] == '+':
		if len(s) > 1 && isASCIIDigit(s[1]) {
			return 0
		}
		return 1
	case s[0] == '.':
		return dotsAt(s)
	}
	r, n := utf8.DecodeRuneInString(s)
	if e.of(r)&isPrefix != 0 {
		return n
	}
	for _, money := range []string{"US$", "C$", "A$"} {
		if strings.HasPrefix(s, money) {
			return len(money)
		}
	}
	return 0
}

// dotsAt returns the length of two or more dots at the begin of a text, 0 for less.
func dotsAt(s string) int {
	n := 0
	for n < len(s) && s[n] == '.' {
		n++
	}
	if n < 2 {
		return 0
	}
	return n
}

// suffix returns how many bytes at the end of a chunk are a word of their own: of all rules that fit, the
// one that begins first.
func (e *english) suffix(s string) int {
	if s == "" {
		return 0
	}
	r, n := utf8.DecodeLastRuneInString(s)
	before := s[:len(s)-n]
	p, pn := utf8.DecodeLastRuneInString(before)
	best := 0
	switch {
	case r == '.':
		best = e.dotSuffix(s, before, p, pn)
	case r == '…' && p == '…':
		best = n + pn
	case (r == 's' || r == 'S') && (p == '\'' || p == '’'):
		best = n + pn
	case e.of(r)&isSuffix != 0:
		best = n
	case r == '+' && len(before) > 0 && isASCIIDigit(before[len(before)-1]):
		best = 1
	}
	return max(best, e.unitSuffix(s))
}

// dotSuffix is suffix of a chunk that ends in a dot. before is what is in front of it, and p its last
// character of pn bytes.
func (e *english) dotSuffix(s, before string, p rune, pn int) int {
	if p == '.' {
		n := 0
		for n < len(s) && s[len(s)-1-n] == '.' {
			n++
		}
		return n
	}
	if pn == 0 {
		return 0
	}
	pp, ppn := utf8.DecodeLastRuneInString(before[:len(before)-pn])
	switch {
	case e.of(p)&isBeforeDot != 0, ppn > 0 && e.of(p)&isUpper != 0 && e.of(pp)&isUpper != 0,
		pp == '°' && strings.ContainsRune("FfCcKk", p):
		return 1
	}
	return 0
}

// unitBytesMax is longer than any unit or currency.
const unitBytesMax = 24

// unitSuffix returns the length of a unit or currency that stands behind a digit.
func (e *english) unitSuffix(s string) int {
	for n := 1; n < len(s) && n <= unitBytesMax; n++ {
		if isASCIIDigit(s[len(s)-n]) {
			return 0
		}
		if isASCIIDigit(s[len(s)-n-1]) {
			if tail := s[len(s)-n:]; e.units[tail] || e.currency[tail] {
				return n
			}
			return 0
		}
	}
	return 0
}

// infixes appends the cuts at infixes to out: lengths of the words of a chunk.
func (e *english) infixes(s string, out []int32) []int32 {
	start := 0
	for i := 0; i < len(s); {
		n := e.infix(s, i)
		if n == 0 {
			_, w := utf8.DecodeRuneInString(s[i:])
			i += w
			continue
		}
		if i > 0 { // at the begin of the chunk it is no infix, as spaCy has it
			if i != start {
				out = append(out, int32(i-start))
			}
			out = append(out, int32(n))
			start = i + n
		}
		i += n
	}
	if start < len(s) {
		out = append(out, int32(len(s)-start))
	}
	return out
}

// infix returns the length of an infix that begins at byte i of s, 0 for none.
func (e *english) infix(s string, i int) int {
	b := s[i]
	if b < utf8.RuneSelf && !infixStart[b] {
		return 0
	}
	if b == '.' {
		if n := dotsAt(s[i:]); n > 0 {
			return n
		}
		if e.before(s, i)&isLowerQuote != 0 && e.at(s, i+1)&isUpperQuote != 0 {
			return 1
		}
		return 0
	}
	r, n := utf8.DecodeRuneInString(s[i:])
	if e.of(r)&isInfix != 0 {
		return n
	}
	prev := byte(0)
	if i > 0 {
		prev = s[i-1]
	}
	if (r == '+' || r == '-' || r == '*' || r == '^') && isASCIIDigit(prev) && i+1 < len(s) &&
		(isASCIIDigit(s[i+1]) || s[i+1] == '-') {
		return 1
	}
	alpha := e.before(s, i)&isAlpha != 0
	switch {
	case r == ',' && alpha && e.at(s, i+1)&isAlpha != 0:
		return 1
	case !alpha && !isASCIIDigit(prev):
		return 0
	case (r == ':' || r == '<' || r == '>' || r == '=' || r == '/') && e.at(s, i+1)&isAlpha != 0:
		return 1
	}
	for _, h := range hyphens {
		if strings.HasPrefix(s[i:], h) && e.at(s, i+len(h))&isAlpha != 0 {
			return len(h)
		}
	}
	return 0
}

// infixStart has the ASCII characters that an infix begins with.
var infixStart = func() (t [utf8.RuneSelf]bool) {
	for _, c := range ".+-*^,:<>=/~" {
		t[c] = true
	}
	return t
}()

// hyphens in the order in which they are tried.
var hyphens = []string{"-", "–", "—", "--", "---", "——", "~"}

// before returns the classes of the character in front of byte i, 0 at the begin.
func (e *english) before(s string, i int) class {
	if i == 0 {
		return 0
	}
	r, _ := utf8.DecodeLastRuneInString(s[:i])
	return e.of(r)
}

// at returns the classes of the character at byte i, 0 at the end.
func (e *english) at(s string, i int) class {
	if i >= len(s) {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(s[i:])
	return e.of(r)
}
