package serve

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// python reads calls as Python writes them, with literals as arguments: [name(key=value, …), …].
type python struct {
	text string
	ok   bool
	deep int
}

var (
	pythonName   = regexp.MustCompile(`^[A-Za-z_][\w.]*`)
	pythonNumber = regexp.MustCompile(`^[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?`)
)

// pythonDeep bounds lists within lists.
const pythonDeep = 64

// pythonic are the calls of a text, false where all of it is none.
func pythonic(text string) (calls []call, ok bool) {
	if text = strings.TrimSpace(text); !strings.HasPrefix(text, "[") { // each on a line, without a list
		text = "[" + strings.ReplaceAll(text, ")\n", "),\n") + "]"
	}
	p := &python{text: text, ok: true}
	p.list('[', ']', func() {
		c := call{name: p.match(pythonName)}
		var keys, values []string
		p.list('(', ')', func() {
			key := p.match(pythonName)
			p.take('=')
			keys, values = append(keys, key), append(values, p.value())
		})
		for i, k := range keys {
			values[i] = quoted(k) + ": " + values[i]
		}
		c.arguments = "{" + strings.Join(values, ", ") + "}"
		calls = append(calls, c)
	})
	return calls, p.ok && p.text == "" && len(calls) > 0
}

// peek is the next letter, behind white space; 0 at the end, and where the text was none of Python's.
func (p *python) peek() byte {
	if p.text = strings.TrimLeft(p.text, " \t\r\n"); p.text == "" || !p.ok {
		return 0
	}
	return p.text[0]
}

// take goes past a letter that has to be there.
func (p *python) take(c byte) {
	if p.ok = p.peek() == c; p.ok {
		p.text = p.text[1:]
	}
}

// match goes past what a pattern describes, which has to be there.
func (p *python) match(of *regexp.Regexp) string {
	p.peek()
	m := of.FindString(p.text)
	p.ok = p.ok && m != ""
	p.text = p.text[len(m):]
	return m
}

// list reads items between brackets, with commas between them and perhaps one behind the last.
func (p *python) list(open, shut byte, item func()) {
	p.take(open)
	if p.deep++; p.deep > pythonDeep {
		p.ok = false
	}
	for p.ok && p.peek() != shut {
		if item(); p.peek() != shut {
			p.take(',')
		}
	}
	p.deep--
	p.take(shut)
}

// value reads a literal, and gives it as JSON.
func (p *python) value() string {
	var all []string
	switch c := p.peek(); {
	case c == '[' || c == '(':
		p.list(c, map[byte]byte{'[': ']', '(': ')'}[c], func() { all = append(all, p.value()) })
		return "[" + strings.Join(all, ", ") + "]"
	case c == '{':
		p.list('{', '}', func() {
			key := p.string()
			p.take(':')
			all = append(all, key+": "+p.value())
		})
		return "{" + strings.Join(all, ", ") + "}"
	case c == '"' || c == '\'':
		return p.string()
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9':
		text := strings.ReplaceAll(strings.TrimPrefix(p.match(pythonNumber), "+"), "_", "")
		if n := strings.TrimPrefix(text, "-"); json.Valid([]byte(n)) {
			return text
		}
		x, err := strconv.ParseFloat(text, 64) // 1. and .5
		p.ok = p.ok && err == nil && !strings.HasPrefix(strings.TrimPrefix(text, "-"), "0")
		return string(asJSON(x))
	}
	word := map[string]string{"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}[p.match(pythonName)]
	p.ok = p.ok && word != ""
	return word
}

// string reads a text in quotes of either kind, in which lines may end.
func (p *python) string() string {
	quote := p.peek()
	if p.ok = quote == '"' || quote == '\''; !p.ok {
		return `""`
	}
	var out strings.Builder
	for rest := p.text[1:]; ; {
		switch {
		case rest == "":
			p.ok = false
			return `""`
		case rest[0] == quote:
			p.text = rest[1:]
			return quoted(out.String())
		case rest[0] == '\\' && len(rest) > 1 && strings.IndexByte("\n'\"", rest[1]) >= 0: // the line goes on, or a quote
			out.WriteString(strings.TrimPrefix(rest[1:2], "\n"))
			rest = rest[2:]
			continue
		}
		c, multibyte, tail, err := strconv.UnquoteChar(rest, quote)
		switch {
		case err != nil || rest[0] == '\n' || multibyte && rest[0] != '\\':
			tail = rest[1:] // as it stands: Python leaves what it does not know as an escape too, but numbers
			out.WriteByte(rest[0])
			p.ok = p.ok && (rest[0] != '\\' || len(rest) < 2 || strings.IndexByte("xuU", rest[1]) < 0)
		default:
			out.WriteRune(c)
		}
		rest = tail
	}
}
