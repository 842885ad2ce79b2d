package maths

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// kind is what a token is.
type kind int

const (
	number  kind = iota // digits with a point, without separators of thousands
	letter              // one letter
	command             // `\name`, and \{ \} \\ too
	word                // several letters that are no product: a unit, or a text
	sign                // one character
	ending
)

// token is a piece of an answer.
type token struct {
	kind   kind
	text   string
	spaced bool // white space stands before it
}

var errBraces = errors.New("its braces do not match")

// lexer cuts a text in tokens.
type lexer struct {
	in     string
	out    []token
	spaced bool
	deep   int
}

// lex gives a text's tokens.
func lex(text string) ([]token, error) {
	l := &lexer{in: plain.Replace(text)}
	if err := l.all(); err != nil {
		return nil, err
	}
	return l.out, nil
}

func (l *lexer) add(k kind, text string) {
	l.out = append(l.out, token{k, text, l.spaced})
	l.spaced = false
}

func (l *lexer) all() error {
	for l.in != "" {
		r, size := utf8.DecodeRuneInString(l.in)
		switch {
		case unicode.IsSpace(r), r == '~':
			l.in, l.spaced = l.in[size:], true
		case r == '\\':
			if err := l.command(); err != nil {
				return err
			}
		case r >= '0' && r <= '9', r == '.' && len(l.in) > 1 && digit(l.in[1]):
			l.number()
		case unicode.IsLetter(r):
			l.letters()
		case strings.HasPrefix(l.in, "<="), strings.HasPrefix(l.in, ">="), strings.HasPrefix(l.in, "!="),
			strings.HasPrefix(l.in, "**"):
			l.add(command, map[string]string{"<=": `\le`, ">=": `\ge`, "!=": `\ne`, "**": "^"}[l.in[:2]])
			if l.in[0] == '*' {
				l.out[len(l.out)-1].kind = sign
			}
			l.in = l.in[2:]
		case r == '$', r == '"', r == '\'', r == '`':
			l.in = l.in[size:]
		default:
			l.add(sign, l.in[:size])
			l.in = l.in[size:]
		}
	}
	return nil
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// number reads digits, thousands in groups of three, and 1e3.
func (l *lexer) number() {
	var text strings.Builder
	i := digits(l.in)
	text.WriteString(l.in[:i])
	for head := i; head > 0 && head <= 3; {
		n := group(l.in[i:])
		if n == 0 {
			break
		}
		text.WriteString(l.in[i+n-3 : i+n])
		i += n
	}
	if i < len(l.in)-1 && l.in[i] == '.' && digit(l.in[i+1]) {
		n := 1 + digits(l.in[i+1:])
		text.WriteString(l.in[i : i+n])
		i += n
	}
	if n := exponent(l.in[i:]); n > 0 {
		text.WriteString(l.in[i : i+n])
		i += n
	}
	if strings.HasPrefix(l.in[i:], ".") && strings.TrimSpace(l.in[i+1:]) == "" {
		i++ // the sentence's
	}
	l.in = l.in[i:]
	l.add(number, text.String())
}

func digits(s string) int {
	i := 0
	for i < len(s) && digit(s[i]) {
		i++
	}
	return i
}

// group is the length of a separator with three digits behind it, 0 for none.
func group(s string) int {
	for _, sep := range []string{`,\!`, `{,}`, ",", `\,`, " "} {
		n := len(sep)
		if strings.HasPrefix(s, sep) && digits(s[n:]) == 3 {
			return n + 3
		}
	}
	return 0
}

// exponent is the length of what stands behind 1 in 1e3 and 1E-3, 0 for none.
func exponent(s string) int {
	if s == "" || s[0] != 'e' && s[0] != 'E' {
		return 0
	}
	i := 1
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	if n := digits(s[i:]); n > 0 && n < 4 {
		return i + n
	}
	return 0
}

// letters reads a run of letters: a name that is known, a word, or symbols.
func (l *lexer) letters() {
	i := strings.IndexFunc(l.in, func(r rune) bool { return !unicode.IsLetter(r) })
	if i < 0 {
		i = len(l.in)
	}
	run := l.in[:i]
	rest := l.in[i:]
	l.in = rest
	switch low := strings.ToLower(run); {
	case spoken[low]:
		l.named(low)
	case utf8.RuneCountInString(run) >= 4, units[run] && l.measured(run, rest):
		l.add(word, run)
	default:
		for _, r := range run {
			l.add(letter, string(r))
		}
	}
}

// measured reports whether a short word stands where a unit does: at the end, behind a number and a space, or,
// where it has several letters, behind a number or another unit.
func (l *lexer) measured(run, rest string) bool {
	if len(l.out) == 0 {
		return false
	}
	last := l.out[len(l.out)-1]
	behind := last.kind == number || last.kind == word || last.kind == sign && strings.Contains(")}/.", last.text)
	rest = strings.TrimSpace(rest)
	closes := rest == "" || strings.Trim(rest, "./^23 ") == ""
	return behind && (closes && (l.spaced || len(run) > 1) || len(run) > 1 && l.spaced)
}

// named adds a command by its name.
func (l *lexer) named(name string) {
	to, ok := renamed[name]
	switch {
	case !ok:
		l.add(command, `\`+name)
	case to == "i":
		l.add(letter, to)
	case to[0] == '\\':
		l.add(command, to)
	default:
		l.add(sign, to)
	}
}

func (l *lexer) command() error {
	s := l.in[1:]
	i := 0
	for i < len(s) && (s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z') {
		i++
	}
	if i == 0 {
		return l.mark()
	}
	name := s[:i]
	l.in = s[i:]
	switch {
	case layout[name]:
		l.spaced = l.spaced || strings.Contains(name, "space") || strings.Contains(name, "quad")
		if name == "left" || name == "right" {
			l.in = strings.TrimPrefix(strings.TrimLeft(l.in, " "), ".")
		}
	case fonts[name]:
		return l.font(name)
	case strings.HasSuffix(name, "phantom"):
		_, rest, ok := braced(l.in)
		if !ok {
			return errBraces
		}
		l.in = rest
	case name == "begin" || name == "end":
		env, rest, ok := braced(l.in)
		if !ok {
			return errBraces
		}
		l.in = rest
		l.add(command, `\`+name+" "+strings.TrimSuffix(env, "*"))
	default:
		l.named(name)
	}
	return nil
}

// mark reads a backslash that no letter follows.
func (l *lexer) mark() error {
	s := l.in[1:]
	if s == "" {
		l.in = ""
		return nil
	}
	r, size := utf8.DecodeRuneInString(s)
	l.in = s[size:]
	switch r {
	case '{', '}', '\\':
		l.add(command, `\`+string(r))
	case '%':
		l.add(sign, "%")
	case '|':
		l.add(sign, "|")
	case '$', '!', '(', ')', '[', ']', '&', '#':
	case ',', ';', ':', '>', ' ', '\n', '/':
		l.spaced = true
	default:
		return errors.New(`it has \` + string(r))
	}
	return nil
}

// font reads what stands in one of fonts: a text, or mathematics in other letters.
func (l *lexer) font(name string) error {
	inner, rest, ok := braced(l.in)
	if !ok {
		return errBraces
	}
	l.in = rest
	trimmed := strings.TrimSpace(inner)
	if name == "mathbb" {
		l.add(command, `\bb`+trimmed)
		return nil
	}
	if trimmed == "" {
		l.spaced = true
		return nil
	}
	onlyLetters := strings.IndexFunc(trimmed, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsSpace(r) && r != '-' && r != '.' && r != ',' && r != '/'
	}) < 0
	if onlyLetters && utf8.RuneCountInString(trimmed) > 1 && !spoken[strings.ToLower(trimmed)] {
		l.add(word, trimmed)
		return nil
	}
	if l.deep++; l.deep > depthMost {
		return errors.New("it is nested too deep")
	}
	group := name == "boxed" || name == "fbox"
	if group {
		l.add(sign, "{")
	}
	l.in, l.spaced = inner, l.spaced || name == "text"
	err := l.all()
	if group {
		l.add(sign, "}")
	}
	l.in = rest
	l.deep--
	return err
}

// braced cuts {…} from the beginning of a text, or its first character where there is no brace.
func braced(s string) (inner, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t\n")
	if s == "" {
		return "", "", false
	}
	if s[0] != '{' {
		_, size := utf8.DecodeRuneInString(s)
		return s[:size], s[size:], true
	}
	open := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '{':
			open++
		case '}':
			if open--; open == 0 {
				return s[1:i], s[i+1:], true
			}
		}
	}
	return "", "", false
}
