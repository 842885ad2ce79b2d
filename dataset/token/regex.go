package token

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/dlclark/regexp2/v2"

	"github.com/lfactor/lfactor/dataset"
)

// SlowError says that a regular expression of a tokenizer did not come to an end on a text.
type SlowError struct {
	Pattern string
	Bytes   int // of the text
	At      int // byte from which on no match was found in time
	Cause   error
}

func (e *SlowError) Error() string {
	return fmt.Sprintf("the tokenizer's pattern %q found no match behind byte %d of a text of %d bytes: "+
		"%v; the pattern may take exponential time on it", e.Pattern, e.At, e.Bytes, e.Cause)
}

// Is says that it is dataset.ErrStuck.
func (e *SlowError) Is(target error) bool { return target == dataset.ErrStuck }

// Unwrap returns the engine's error.
func (e *SlowError) Unwrap() error { return e.Cause }

// matchTime bounds the search for one match. Patterns in use take microseconds a match on any text.
var matchTime = 3 * time.Second

var errSlow = errors.New("it took too long")

// compileRegex compiles an expression of the library's regular-expression dialect (Oniguruma) with the
// library's classes of characters: to an automaton if it can, else for an engine.
func compileRegex(expr string) (finder, error) {
	engine, err := engineRegex(expr)
	if err != nil {
		return nil, err
	}
	a, err := newAutomaton(expr)
	if err != nil {
		return engine, nil // which takes what an automaton does not
	}
	return a.finder(engine), nil
}

// engineRegex compiles an expression, look-ahead included, for an engine that goes back. A search that takes
// longer than matchTime, or more memory than there is for going back, panics with a *SlowError, which
// Tokenizer turns into an error.
func engineRegex(expr string) (finder, error) {
	plain, err := translate(expr, writeRange)
	if err != nil {
		return nil, err
	}
	re, err := regexp2.Compile(spellClasses(plain, writeRange), regexp2.OptionMaxBacktrackingStackSize(1<<22))
	if err != nil {
		return nil, fmt.Errorf("pattern %q: %w", expr, err)
	}
	re.MatchTimeout = matchTime
	return func(text string, yield func(start, stop int)) {
		at := 0
		m, err := re.FindStringMatch(text)
		for ; err == nil && m != nil; m, err = re.FindNextMatch(m) {
			start, n := m.ByteRange()
			yield(start, start+n)
			at = start + n
		}
		if err != nil {
			if strings.Contains(err.Error(), "timeout") {
				err = fmt.Errorf("%w: over %v", errSlow, matchTime)
			}
			panic(&SlowError{Pattern: expr, Bytes: len(text), At: at, Cause: err})
		}
	}, nil
}

// spellClasses writes the classes of characters in an expression out, since the engine's are those of
// another version of Unicode. write writes a range of characters.
func spellClasses(expr string, write func(out *strings.Builder, lo, hi rune)) string {
	var out strings.Builder
	depth := 0 // of brackets
	for i := 0; i < len(expr); {
		c := expr[i]
		if c == '\\' && i+1 < len(expr) {
			name, negated, size := classAtEscape(expr[i:])
			if depth > 0 {
				name = inBrackets(name)
			}
			if t := unicodeTables()[name]; t != nil {
				writeClass(&out, t, negated, depth > 0, write)
			} else {
				out.WriteString(expr[i : i+size])
			}
			i += size
			continue
		}
		switch {
		case c == '[' && strings.HasPrefix(expr[i:], "[:") && depth > 0:
		case c == '[':
			depth++
		case c == ']' && depth > 0:
			depth--
		}
		out.WriteByte(c)
		i++
		if c == '[' && i < len(expr) && expr[i] == '^' {
			out.WriteByte('^')
			i++
		}
		if c == '[' && i < len(expr) && expr[i] == ']' { // stands for itself there
			out.WriteString(`\]`)
			i++
		}
	}
	return out.String()
}

// inBrackets is the class that a name means within brackets: \w alone has ², ³, ¹, ¼, ½ and ¾ too, by a table of
// Latin-1 that the library looks at first.
func inBrackets(name string) string {
	if name == `\w` {
		return "[:word:]"
	}
	return name
}

// classAtEscape reads an escape: the name of a class of characters, if it is one, whether it means the
// others, and its size in bytes.
func classAtEscape(s string) (name string, negated bool, size int) {
	switch s[1] {
	case 'w', 's', 'd':
		return s[:2], false, 2
	case 'W', 'S', 'D':
		return strings.ToLower(s[:2]), true, 2
	case 'p', 'P':
		negated = s[1] == 'P'
		if len(s) > 2 && s[2] != '{' {
			return s[2:3], negated, 3
		}
		if end := strings.IndexByte(s, '}'); end > 3 {
			name = s[3:end]
			if name[0] == '^' {
				name, negated = name[1:], !negated
			}
			return name, negated, end + 1
		}
	}
	return "", false, 2
}

// writeClass writes the ranges of a class, in brackets of their own unless it stands within some.
func writeClass(out *strings.Builder, t *unicode.RangeTable, negated, inside bool,
	write func(out *strings.Builder, lo, hi rune)) {
	if !inside {
		out.WriteByte('[')
	}
	next := rune(0)
	each := func(lo, hi rune) {
		if negated {
			if lo > next {
				write(out, next, lo-1)
			}
		} else {
			write(out, lo, hi)
		}
		next = hi + 1
	}
	for _, r := range t.R16 {
		each(rune(r.Lo), rune(r.Hi))
	}
	for _, r := range t.R32 {
		each(rune(r.Lo), rune(r.Hi))
	}
	if negated && next <= unicode.MaxRune {
		write(out, next, unicode.MaxRune)
	}
	if !inside {
		out.WriteByte(']')
	}
}

// writeRange writes a range of characters for an expression, as an escape where one exists.
func writeRange(out *strings.Builder, lo, hi rune) {
	for k, r := range []rune{lo, hi} {
		switch {
		case k == 1 && hi == lo:
			return
		case k == 1:
			out.WriteByte('-')
		}
		if r < 1<<16 {
			fmt.Fprintf(out, `\u%04x`, r)
		} else {
			out.WriteRune(r)
		}
	}
}
