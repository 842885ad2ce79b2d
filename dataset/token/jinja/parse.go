package jinja

import (
	"errors"
	"fmt"
	"slices"
)

type parser struct {
	tokens []lexeme
	at     int
	depth  int
	loops  int // enclosing for statements
}

func (p *parser) peek() lexeme { return p.tokens[p.at] }

func (p *parser) next() lexeme {
	t := p.tokens[p.at]
	if t.kind != eof {
		p.at++
	}
	return t
}

// is reports whether the next token is the given symbol or name.
func (p *parser) is(k kind, s string) bool { return p.peek().kind == k && p.peek().text == s }

// accept takes the next token if it is the given symbol or name.
func (p *parser) accept(k kind, s string) bool {
	if p.is(k, s) {
		p.at++
		return true
	}
	return false
}

func (p *parser) expect(k kind, s string) error {
	if !p.accept(k, s) {
		return fmt.Errorf("expected '%s', found %s", s, p.peek())
	}
	return nil
}

func (p *parser) ident() (string, error) {
	t := p.peek()
	if t.kind != name {
		return "", fmt.Errorf("expected a name, found %s", t)
	}
	p.at++
	return t.text, nil
}

// fail gives an error the line the parser has come to.
func (p *parser) fail(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{Line: p.peek().line, Msg: err.Error()}
}

// enter counts a level of nesting, which is bounded so that a template cannot exhaust the stack.
func (p *parser) enter() error {
	if p.depth++; p.depth > depthMax {
		return fmt.Errorf("nested over %d deep", depthMax)
	}
	return nil
}

func (p *parser) parseTemplate() ([]stmt, error) {
	body, end, err := p.parseBody()
	if err == nil && end != "" {
		return nil, fmt.Errorf("'%s' closes nothing", end)
	}
	return body, err
}

// parseBody reads statements up to a block named in ends, whose name is taken and returned; "" at the template's end.
func (p *parser) parseBody(ends ...string) (body []stmt, end string, err error) {
	if err := p.enter(); err != nil {
		return nil, "", err
	}
	defer func() { p.depth-- }()
	for {
		t := p.next()
		switch t.kind {
		case eof:
			if len(ends) > 0 {
				return nil, "", fmt.Errorf("'%s' is missing", ends[len(ends)-1])
			}
			return body, "", nil
		case data:
			body = append(body, textStmt(t.text))
		case openPrint:
			e, err := p.parseTuple()
			if err != nil {
				return nil, "", err
			}
			if p.peek().kind != closePrint {
				return nil, "", fmt.Errorf("expected '}}', found %s", p.peek())
			}
			p.next()
			body = append(body, &printStmt{e, t.line})
		case openBlock:
			word, err := p.ident()
			if err != nil {
				return nil, "", err
			}
			if slices.Contains(ends, word) {
				return body, word, nil
			}
			s, err := p.parseBlock(word, t.line)
			if err != nil {
				return nil, "", err
			}
			body = append(body, s)
		default:
			return nil, "", fmt.Errorf("unexpected %s", t)
		}
	}
}

// closed takes the end of a block.
func (p *parser) closed() error {
	if p.peek().kind != closeBlock {
		return fmt.Errorf("expected '%%}', found %s", p.peek())
	}
	p.at++
	return nil
}

// block reads a body and the end of the closing block.
func (p *parser) block(end string) ([]stmt, error) {
	body, _, err := p.parseBody(end)
	if err != nil {
		return nil, err
	}
	return body, p.closed()
}

func (p *parser) parseBlock(word string, line int) (stmt, error) {
	switch word {
	case "if":
		return p.parseIf(line)
	case "for":
		return p.parseFor(line)
	case "set":
		return p.parseSet(line)
	case "macro":
		return p.parseMacro(line)
	case "call":
		return p.parseCall(line)
	case "filter":
		return p.parseFilterBlock(line)
	case "generation":
		if err := p.closed(); err != nil {
			return nil, err
		}
		body, err := p.block("endgeneration")
		return &generationStmt{body, line}, err
	case "with":
		return p.parseWith(line)
	case "break", "continue":
		if p.loops == 0 {
			return nil, fmt.Errorf("'%s' outside a loop", word)
		}
		return flowStmt(word), p.closed()
	}
	return nil, fmt.Errorf("'%s' is not a block that chat templates may use", word)
}

func (p *parser) parseIf(line int) (stmt, error) {
	out := &ifStmt{line: line}
	word := "if"
	for word == "if" || word == "elif" {
		cond, err := p.parseTuple()
		if err != nil {
			return nil, err
		}
		if err := p.closed(); err != nil {
			return nil, err
		}
		body, end, err := p.parseBody("elif", "else", "endif")
		if err != nil {
			return nil, err
		}
		out.conds = append(out.conds, cond)
		out.bodies = append(out.bodies, body)
		word = end
	}
	if word == "endif" {
		return out, p.closed()
	}
	if err := p.closed(); err != nil {
		return nil, err
	}
	var err error
	out.other, err = p.block("endif")
	return out, err
}

func (p *parser) parseFor(line int) (stmt, error) {
	out := &forStmt{line: line}
	var err error
	if out.target, err = p.parseTarget(); err != nil {
		return nil, err
	}
	if err := p.expect(name, "in"); err != nil {
		return nil, err
	}
	if out.over, err = p.parseTupleUntilIf(); err != nil {
		return nil, err
	}
	if p.accept(name, "if") {
		if out.cond, err = p.parseExpr(); err != nil {
			return nil, err
		}
	}
	out.recursive = p.accept(name, "recursive")
	if err := p.closed(); err != nil {
		return nil, err
	}
	p.loops++
	body, end, err := p.parseBody("else", "endfor")
	p.loops--
	if err != nil {
		return nil, err
	}
	out.body = body
	if err := p.closed(); err != nil || end == "endfor" {
		return out, err
	}
	out.other, err = p.block("endfor")
	return out, err
}

// target is what a set or for assigns to: a name, an attribute of a namespace, or several names.
type target struct {
	names []string
	attr  string
	many  bool
}

// parseTarget reads what is assigned to: a name, several with commas, or an attribute of a name.
func (p *parser) parseTarget() (target, error) {
	paren := p.accept(symbol, "(")
	first, err := p.ident()
	if err != nil {
		return target{}, err
	}
	t := target{names: []string{first}}
	if p.accept(symbol, ".") {
		t.attr, err = p.ident()
		return t, err
	}
	for p.accept(symbol, ",") {
		t.many = true
		if p.peek().kind != name {
			break
		}
		n, err := p.ident()
		if err != nil {
			return t, err
		}
		t.names = append(t.names, n)
	}
	if paren {
		return t, p.expect(symbol, ")")
	}
	return t, nil
}

func (p *parser) parseSet(line int) (stmt, error) {
	t, err := p.parseTarget()
	if err != nil {
		return nil, err
	}
	if p.accept(symbol, "=") {
		e, err := p.parseTuple()
		if err != nil {
			return nil, err
		}
		return &setStmt{target: t, value: e, line: line}, p.closed()
	}
	out := &setStmt{target: t, line: line}
	var inner expr
	for p.is(symbol, "|") {
		if out.filter, err = p.parseFilter(inner); err != nil {
			return nil, err
		}
		inner = out.filter
	}
	if err := p.closed(); err != nil {
		return nil, err
	}
	out.block, err = p.block("endset")
	return out, err
}

func (p *parser) parseMacro(line int) (stmt, error) {
	n, err := p.ident()
	if err != nil {
		return nil, err
	}
	out := &macroStmt{name: n, line: line}
	if err := p.parseParams(out); err != nil {
		return nil, err
	}
	if err := p.closed(); err != nil {
		return nil, err
	}
	return out, p.parseMacroBody(out, "endmacro")
}

// parseParams reads a macro's parameters in their parentheses.
func (p *parser) parseParams(m *macroStmt) error {
	if err := p.expect(symbol, "("); err != nil {
		return err
	}
	for !p.accept(symbol, ")") {
		if len(m.params) > 0 {
			if err := p.expect(symbol, ","); err != nil {
				return err
			}
		}
		if err := p.parseParam(m); err != nil {
			return err
		}
	}
	return nil
}

func (p *parser) parseParam(m *macroStmt) error {
	n, err := p.ident()
	if err != nil {
		return err
	}
	var fallback expr
	if p.accept(symbol, "=") {
		if fallback, err = p.parseExpr(); err != nil {
			return err
		}
	}
	m.params = append(m.params, n)
	m.defaults = append(m.defaults, fallback)
	return nil
}

// parseFilterBlock reads {% filter name %}…{% endfilter %}.
func (p *parser) parseFilterBlock(line int) (stmt, error) {
	p.at-- // the word "filter" stands where parseFilter expects '|'
	f, err := p.parseFilter(nil)
	for err == nil && p.is(symbol, "|") {
		f, err = p.parseFilter(f)
	}
	if err != nil {
		return nil, err
	}
	if err := p.closed(); err != nil {
		return nil, err
	}
	body, err := p.block("endfilter")
	return &filterStmt{f, body, line}, err
}

func (p *parser) parseWith(line int) (stmt, error) {
	out := &withStmt{line: line}
	for p.peek().kind == name {
		t, err := p.parseTarget()
		if err != nil {
			return nil, err
		}
		if err := p.expect(symbol, "="); err != nil {
			return nil, err
		}
		e, err := p.parseExpr()
		if err != nil {
			return nil, err
		}
		out.sets = append(out.sets, &setStmt{target: t, value: e, line: line})
		p.accept(symbol, ",")
	}
	if err := p.closed(); err != nil {
		return nil, err
	}
	var err error
	out.body, err = p.block("endwith")
	return out, err
}
