package jinja

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

type kind int

const (
	eof kind = iota
	data
	openPrint  // {{
	closePrint // }}
	openBlock  // {%
	closeBlock // %}
	name
	text
	whole
	real
	symbol
)

var kindNames = [...]string{"end of template", "text", "'{{'", "'}}'", "'{%'", "'%}'", "name", "string",
	"integer", "float", "symbol"}

// lexeme is one token of a template.
type lexeme struct {
	kind kind
	text string // data, the name, the decoded string, or the symbol
	num  any    // value of a number
	line int
}

func (l lexeme) String() string {
	if l.kind == name || l.kind == symbol {
		return "'" + l.text + "'"
	}
	return kindNames[l.kind]
}

// lexer cuts a template into tokens. White space around tags is dealt with here, as Jinja does with trim_blocks and
// lstrip_blocks set: the newline behind a block goes, and so do spaces before a block that starts its line.
type lexer struct {
	src       string
	at        int
	line      int
	out       []lexeme
	lineStart bool // the text that comes next begins a line
}

// lex splits a template. One newline at the very end is not part of it.
func lex(src string) ([]lexeme, error) {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	l := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true}
	for l.at < len(l.src) {
		if err := l.next(); err != nil {
			return nil, fmt.Errorf("line %d: %w", l.line, err)
		}
	}
	return append(l.out, lexeme{kind: eof, line: l.line}), nil
}

func (l *lexer) emit(k kind, text string, num any) {
	l.out = append(l.out, lexeme{k, text, num, l.line})
}

// skip moves on by n bytes and counts lines.
func (l *lexer) skip(n int) {
	l.line += strings.Count(l.src[l.at:l.at+n], "\n")
	l.at += n
}

var rawBegin = regexp.MustCompile(`^\{%([-+]?)\s*raw\s*(-?)%\}`)
var rawEnd = regexp.MustCompile(`\{%([-+]?)\s*endraw\s*([-+]?)%\}`)

// next reads text up to a tag, and the tag.
func (l *lexer) next() error {
	rest := l.src[l.at:]
	open := findOpen(rest)
	if open < 0 {
		l.emit(data, rest, nil)
		l.at = len(l.src)
		return nil
	}
	tag := rest[open : open+2]
	sign := byte(0)
	if open+2 < len(rest) && (rest[open+2] == '-' || rest[open+2] == '+') {
		sign = rest[open+2]
	}
	if before := l.stripBefore(rest[:open], sign, tag != "{{"); before != "" {
		l.emit(data, before, nil)
	}
	l.skip(open)
	if m := rawBegin.FindStringSubmatch(l.src[l.at:]); m != nil {
		return l.raw(len(m[0]), m[2] == "-")
	}
	l.skip(2)
	if sign != 0 {
		l.skip(1)
	}
	switch tag {
	case "{#":
		return l.comment()
	case "{{":
		l.emit(openPrint, "", nil)
		return l.tokens("}}", closePrint)
	}
	l.emit(openBlock, "", nil)
	return l.tokens("%}", closeBlock)
}

// findOpen returns where the first tag starts.
func findOpen(s string) int {
	for i := 0; ; i++ {
		k := strings.IndexByte(s[i:], '{')
		if k < 0 || i+k+1 >= len(s) {
			return -1
		}
		i += k
		if c := s[i+1]; c == '{' || c == '%' || c == '#' {
			return i
		}
	}
}

// stripBefore drops the white space that a tag with the given sign takes from the text in front of it.
func (l *lexer) stripBefore(s string, sign byte, block bool) string {
	if sign == '-' {
		return strings.TrimRightFunc(s, isSpace)
	}
	if sign == '+' || !block {
		return s
	}
	from := strings.LastIndexByte(s, '\n') + 1
	if (from > 0 || l.lineStart) && strings.TrimFunc(s[from:], isSpace) == "" {
		return s[:from]
	}
	return s
}

// stripAfter drops the white space behind a tag that ended with the given sign.
func (l *lexer) stripAfter(sign byte, block bool) {
	rest := l.src[l.at:]
	l.lineStart = false
	switch {
	case sign == '-':
		n := len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
		l.lineStart = n > 0 && rest[n-1] == '\n'
		l.skip(n)
	case sign != '+' && block && strings.HasPrefix(rest, "\n"):
		l.lineStart = true
		l.skip(1)
	}
}

func (l *lexer) comment() error {
	n := strings.Index(l.src[l.at:], "#}")
	if n < 0 {
		return fmt.Errorf("a comment is not closed")
	}
	sign := byte(0)
	if n > 0 {
		sign = l.src[l.at+n-1]
	}
	l.skip(n + 2)
	l.stripAfter(sign, true)
	return nil
}

// raw emits the text up to endraw as it stands.
func (l *lexer) raw(begin int, strip bool) error {
	l.skip(begin)
	if strip {
		l.stripAfter('-', true)
	}
	l.lineStart = false
	m := rawEnd.FindStringSubmatchIndex(l.src[l.at:])
	if m == nil {
		return fmt.Errorf("raw is not closed by endraw")
	}
	rest := l.src[l.at:]
	if body := l.stripBefore(rest[:m[0]], signOf(rest[m[2]:m[3]]), true); body != "" {
		l.emit(data, body, nil)
	}
	l.skip(m[1])
	l.stripAfter(signOf(rest[m[4]:m[5]]), true)
	return nil
}

func signOf(s string) byte {
	if s == "" {
		return 0
	}
	return s[0]
}

var (
	reSpace  = regexp.MustCompile(`^\s+`)
	reFloat  = regexp.MustCompile(`^(?:\d+(?:_\d+)*)(?:\.\d+(?:_\d+)*(?:[eE][+-]?\d+(?:_\d+)*)?|[eE][+-]?\d+(?:_\d+)*)`)
	reWhole  = regexp.MustCompile(`^(?:0[bB](?:_?[01])+|0[oO](?:_?[0-7])+|0[xX](?:_?[0-9a-fA-F])+|[1-9](?:_?\d)*|0(?:_?0)*)`)
	reText   = regexp.MustCompile(`(?s)^(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")`)
	reSymbol = regexp.MustCompile(`^(?:\*\*|//|==|!=|>=|<=|[-+/*%~\[\](){}<>=.:|,;])`)
)

// tokens reads the tokens of a tag up to its end. Inside brackets an end mark is not seen, so {{ {"a": {}} }} works.
func (l *lexer) tokens(end string, endKind kind) error {
	depth := 0
	for {
		rest := l.src[l.at:]
		if s := reSpace.FindString(rest); s != "" {
			l.skip(len(s))
			continue
		}
		if depth == 0 {
			if sign := closing(rest, end); sign >= 0 {
				l.emit(endKind, "", nil)
				l.skip(len(end) + min(sign, 1))
				l.stripAfter(byte(sign), endKind == closeBlock)
				return nil
			}
		}
		if rest == "" {
			return fmt.Errorf("a tag is not closed by %s", end)
		}
		n, err := l.token(rest)
		if err != nil {
			return err
		}
		if last := l.out[len(l.out)-1]; last.kind == symbol {
			switch last.text {
			case "(", "[", "{":
				depth++
			case ")", "]", "}":
				depth--
			}
		}
		l.skip(n)
	}
}

// closing returns the sign in front of the end mark, 0 for none, and -1 where rest is not an end. Only blocks take '+'.
func closing(rest, end string) int {
	switch {
	case strings.HasPrefix(rest, end):
		return 0
	case strings.HasPrefix(rest, "-"+end):
		return '-'
	case end == "%}" && strings.HasPrefix(rest, "+"+end):
		return '+'
	}
	return -1
}

// token emits the token at the start of rest and returns its length.
func (l *lexer) token(rest string) (int, error) {
	afterDot := len(l.out) > 0 && l.out[len(l.out)-1].text == "." && l.out[len(l.out)-1].kind == symbol
	if s := reFloat.FindString(rest); s != "" && !afterDot {
		x, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
		l.emit(real, s, x)
		return len(s), err
	}
	if s := reWhole.FindString(rest); s != "" {
		n, err := strconv.ParseInt(s, 0, 64)
		if s[0] == '0' && strings.Trim(s, "0_") == "" {
			n, err = 0, nil
		}
		l.emit(whole, s, n)
		return len(s), err
	}
	if n := nameLen(rest); n > 0 {
		l.emit(name, rest[:n], nil)
		return n, nil
	}
	if s := reText.FindString(rest); s != "" {
		v, err := unescape(s[1 : len(s)-1])
		l.emit(text, v, nil)
		return len(s), err
	}
	if s := reSymbol.FindString(rest); s != "" {
		l.emit(symbol, s, nil)
		return len(s), nil
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return 0, fmt.Errorf("unexpected character %q", r)
}

func nameLen(s string) int {
	for i, r := range s {
		if r != '_' && !unicode.IsLetter(r) && (i == 0 || !unicode.IsDigit(r)) {
			return i
		}
	}
	return len(s)
}

var simpleEscapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': ""}

// unescape decodes a Python string literal's body; an escape Python does not know stays as it is.
func unescape(s string) (string, error) {
	var out strings.Builder
	for {
		i := strings.IndexByte(s, '\\')
		if i < 0 || i+1 >= len(s) {
			out.WriteString(s)
			return out.String(), nil
		}
		out.WriteString(s[:i])
		c := s[i+1]
		s = s[i+2:]
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
		if e, ok := simpleEscapes[c]; ok {
			out.WriteString(e)
		} else if c == 'N' {
			end := strings.IndexByte(s, '}')
			if end < 0 || s[0] != '{' {
				return "", fmt.Errorf(`\N in a string is not followed by the name of a character in braces`)
			}
			r, ok := runeNamed(s[1:end])
			if !ok {
				return "", fmt.Errorf(`\N{%s} names no character`, s[1:end])
			}
			out.WriteRune(r)
			s = s[end+1:]
		} else if width == 0 {
			s = writeOctal(&out, c, s)
		} else {
			code, err := strconv.ParseUint(s[:min(width, len(s))], 16, 32)
			if err != nil || len(s) < width || !utf8.ValidRune(rune(code)) {
				return "", fmt.Errorf(`\%c in a string is not followed by %d hexadecimal digits of a character`, c, width)
			}
			out.WriteRune(rune(code))
			s = s[width:]
		}
	}
}

// writeOctal writes the character of an octal escape that starts with c, or c with its backslash.
func writeOctal(out *strings.Builder, c byte, s string) string {
	if c < '0' || c > '7' {
		out.WriteByte('\\')
		out.WriteByte(c)
		return s
	}
	v, n := rune(c-'0'), 0
	for ; n < 2 && n < len(s) && s[n] >= '0' && s[n] <= '7'; n++ {
		v = v*8 + rune(s[n]-'0')
	}
	out.WriteRune(v)
	return s[n:]
}
