package words

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// The parts of spaCy's pattern of addresses (Mathias Bynens, Diego Perini, MIT licence).
const (
	urlProtocol = `(?:[\p{L}\p{N}_+\-.]{2,}://)?`
	urlHost     = `(?:(?:[A-Za-z0-9\x{a1}-\x{ffff}][A-Za-z0-9\x{a1}-\x{ffff}_-]{0,62})?[A-Za-z0-9\x{a1}-\x{ffff}]\.)+`
	urlNumbers  = `([1-9]\p{Nd}?|1\p{Nd}\p{Nd}|2[01]\p{Nd}|22[0-3])\.` +
		`(1?\p{Nd}{1,2}|2[0-4]\p{Nd}|25[0-5])\.(?:1?\p{Nd}{1,2}|2[0-4]\p{Nd}|25[0-5])` +
		`\.(?:[1-9]\p{Nd}?|1\p{Nd}\p{Nd}|2[0-4]\p{Nd}|25[0-4])`
	urlEnd = `(?::\p{Nd}{2,5})?(?:[/?#].*)?$`
)

var (
	urlByNumber = regexp.MustCompile(`(?s)^` + urlNumbers + urlEnd)
	urlBefore   = regexp.MustCompile(`^[\p{L}\p{N}_+\-.]{2,}://$`)
)

// urlByName is the pattern of addresses with a name. Its last part is of lower-case letters as spaCy has them.
var urlByName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?s)^` + urlProtocol + `(?:.+@)?` + urlHost + `[` + lowerRanges() + `]{2,63}` + urlEnd)
})

// lowerRanges writes the class of lower-case letters for a pattern.
func lowerRanges() string {
	var b strings.Builder
	e := table()
	from := rune(-1)
	for c := rune(0); c <= 0x110000; c++ {
		in := e.of(c)&isLower != 0
		switch {
		case in && from < 0:
			from = c
		case !in && from >= 0:
			b.WriteString(string(from) + "-" + string(c-1))
			from = -1
		}
	}
	return b.String()
}

// isAddress says whether a chunk is an address of the web as a whole.
func isAddress(s string) bool {
	if at := strings.IndexByte(s[1:], '.'); at < 0 {
		return false
	}
	return urlByName().MatchString(s) || isNumbered(s)
}

// isNumbered says whether a chunk is an address with a numeric host outside private networks. The host is
// at the begin, behind a protocol, or behind the name of a user.
func isNumbered(s string) bool {
	if publicHost(s) {
		return true
	}
	if i := strings.Index(s, "://"); i >= 0 && urlBefore.MatchString(s[:i+3]) && publicHost(s[i+3:]) {
		return true
	}
	for i := 1; i < len(s); i++ {
		if s[i] == '@' && publicHost(s[i+1:]) {
			return true
		}
	}
	return false
}

// publicHost says whether s is a numeric host that is not private, with what may follow one.
func publicHost(s string) bool {
	m := urlByNumber.FindStringSubmatch(s)
	if m == nil {
		return false
	}
	private := m[1] == "10" || m[1] == "127" || m[1] == "169" && m[2] == "254" || m[1] == "192" && m[2] == "168" ||
		m[1] == "172" && slices.Contains(private172, m[2])
	return !private
}

var private172 = strings.Fields("16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31")
