package grammar

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// GBNF is the sentences of a grammar in llama.cpp's form: rules NAME ::= EXPRESSION of which root is the text,
// with "texts", [classes], other rules, groups, |, *, +, ?, {n}, {n,} and {n,m}. Errors name the line.
func GBNF(src string) (*Grammar, error) {
	if len(src) > textMost {
		return nil, errLong
	}
	r := &gbnf{src: src, line: 1, rules: map[string]node{}}
	for r.space(true); r.at < len(src); r.space(true) {
		name := r.name()
		r.space(false)
		if name == "" || !r.eat("::=") {
			return nil, r.fault("a rule is to begin with NAME ::=")
		}
		if _, twice := r.rules[name]; twice {
			return nil, r.fault("the rule %q is there twice", name)
		}
		n, err := r.choice(0)
		if err != nil {
			return nil, err
		}
		r.space(false)
		if r.at < len(src) && src[r.at] != '\n' && src[r.at] != '\r' {
			return nil, r.fault("%.20q is not understood", src[r.at:])
		}
		r.rules[name] = n
	}
	return compile(r.rules, "root")
}

// gbnf reads a grammar.
type gbnf struct {
	src   string
	at    int
	line  int
	rules map[string]node
}

func (r *gbnf) fault(format string, args ...any) error {
	return fmt.Errorf("line %d: %s", r.line, fmt.Sprintf(format, args...))
}

// eat passes a text over, if it comes next.
func (r *gbnf) eat(text string) bool {
	ok := strings.HasPrefix(r.src[r.at:], text)
	if ok {
		r.at += len(text)
	}
	return ok
}

// space passes spaces and comments over, and ends of lines where a rule may go on behind them.
func (r *gbnf) space(lines bool) {
	for r.at < len(r.src) {
		switch c := r.src[r.at]; {
		case c == '#':
			n := strings.IndexByte(r.src[r.at:], '\n')
			if n < 0 {
				n = len(r.src) - r.at
			}
			r.at += n
		case c == ' ', c == '\t', lines && c == '\r':
			r.at++
		case lines && c == '\n':
			r.at++
			r.line++
		default:
			return
		}
	}
}

func (r *gbnf) name() string {
	from := r.at
	for r.at < len(r.src) {
		c := r.src[r.at]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			break
		}
		r.at++
	}
	return r.src[from:r.at]
}

// choice reads sequences between bars.
func (r *gbnf) choice(depth int) (node, error) {
	if depth > depthMost {
		return node{}, r.fault("there are more than %d groups in one another", depthMost)
	}
	var l []node
	for {
		n, err := r.sequence(depth)
		if err != nil {
			return n, err
		}
		l = append(l, n)
		if r.space(depth > 0); !r.eat("|") {
			return alt(l...), nil
		}
		r.space(true)
	}
}

func (r *gbnf) sequence(depth int) (node, error) {
	var l []node
	for {
		r.space(depth > 0)
		n, ok, err := r.one(depth)
		if err != nil {
			return n, err
		}
		if !ok {
			return seq(l...), nil
		}
		if n, err = r.repeated(n); err != nil {
			return n, err
		}
		l = append(l, n)
	}
}

// one reads a text, a class, a rule's name or a group.
func (r *gbnf) one(depth int) (n node, ok bool, err error) {
	switch {
	case r.eat("("):
		if n, err = r.choice(depth + 1); err == nil && !r.eat(")") {
			err = r.fault("a group is not closed")
		}
		return n, true, err
	case r.eat(`"`):
		for !r.eat(`"`) {
			c, err := r.char()
			if err != nil {
				return n, false, err
			}
			n.text += string(c)
		}
		return n, true, nil
	case r.eat("["):
		n, err = r.class()
		return n, true, err
	case r.eat("."):
		return set(0, utf8.MaxRune), true, nil
	}
	name := r.name()
	return ref(name), name != "", nil
}

// char reads a character of a text or a class.
func (r *gbnf) char() (rune, error) {
	c, n := utf8.DecodeRuneInString(r.src[r.at:])
	if n == 0 || c == '\n' {
		return 0, r.fault("a text or a class is not closed")
	}
	if r.at += n; c != '\\' {
		return c, nil
	}
	c, n = utf8.DecodeRuneInString(r.src[r.at:])
	r.at += n
	if i := strings.IndexRune(`nrt"\[]-^`, c); n > 0 && i >= 0 {
		return rune("\n\r\t\"\\[]-^"[i]), nil
	}
	if size := map[rune]int{'x': 2, 'u': 4, 'U': 8}[c]; size > 0 && r.at+size <= len(r.src) {
		if x, err := strconv.ParseUint(r.src[r.at:r.at+size], 16, 32); err == nil && x <= utf8.MaxRune {
			r.at += size
			return rune(x), nil
		}
	}
	return 0, r.fault(`\%c is no escape that is known`, c)
}

func (r *gbnf) class() (node, error) {
	n := node{kind: class}
	not := r.eat("^")
	for !r.eat("]") {
		lo, err := r.char()
		if err != nil {
			return n, err
		}
		hi := lo
		if strings.HasPrefix(r.src[r.at:], "-") && !strings.HasPrefix(r.src[r.at:], "-]") {
			r.at++
			if hi, err = r.char(); err != nil {
				return n, err
			}
		}
		if hi < lo {
			return n, r.fault("the range from %q to %q is empty", lo, hi)
		}
		n.runes = append(n.runes, [2]rune{lo, hi})
	}
	if not {
		n.runes = others(n.runes)
	}
	return n, nil
}

// repeated reads what says how often an expression comes.
func (r *gbnf) repeated(n node) (node, error) {
	switch {
	case r.eat("*"):
		return rep(n, 0, -1), nil
	case r.eat("+"):
		return rep(n, 1, -1), nil
	case r.eat("?"):
		return opt(n), nil
	case !r.eat("{"):
		return n, nil
	}
	end := strings.IndexByte(r.src[r.at:], '}')
	if end < 0 {
		return n, r.fault("{ is not closed")
	}
	low, high, two := strings.Cut(r.src[r.at:r.at+end], ",")
	r.at += end + 1
	least, err := strconv.Atoi(strings.TrimSpace(low))
	most := least
	if two && strings.TrimSpace(high) == "" {
		most = -1
	} else if two && err == nil {
		most, err = strconv.Atoi(strings.TrimSpace(high))
	}
	if err != nil || least < 0 || most >= 0 && most < least || max(least, most) > CodeMost {
		return n, r.fault("{%s} is no number of times", strings.TrimSuffix(low+","+high, ","))
	}
	return rep(n, least, most), nil
}
