package jinja

import (
	"fmt"
	"slices"
)

// parseTuple reads an expression, or several joined by commas, which form a tuple.
func (p *parser) parseTuple() (expr, error) { return p.tupleOf(p.parseExpr) }

// parseTupleUntilIf is parseTuple for what a for loop runs over: an if behind it belongs to the loop.
func (p *parser) parseTupleUntilIf() (expr, error) { return p.tupleOf(p.parseOr) }

func (p *parser) tupleOf(one func() (expr, error)) (expr, error) {
	first, err := one()
	if err != nil || !p.is(symbol, ",") {
		return first, err
	}
	out := &listExpr{items: []expr{first}, tuple: true}
	for p.accept(symbol, ",") {
		if k := p.peek().kind; k == closePrint || k == closeBlock || p.is(symbol, ")") {
			break
		}
		e, err := one()
		if err != nil {
			return nil, err
		}
		out.items = append(out.items, e)
	}
	return out, nil
}

// parseExpr reads "a if b else c" or anything that binds tighter.
func (p *parser) parseExpr() (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	e, err := p.parseOr()
	for err == nil && p.accept(name, "if") {
		c := &condExpr{then: e}
		if c.cond, err = p.parseOr(); err != nil {
			return nil, err
		}
		if p.accept(name, "else") {
			c.other, err = p.parseExpr()
		}
		e = c
	}
	return e, err
}

func (p *parser) parseOr() (expr, error)  { return p.logic("or", p.parseAnd) }
func (p *parser) parseAnd() (expr, error) { return p.logic("and", p.parseNot) }

func (p *parser) logic(word string, operand func() (expr, error)) (expr, error) {
	left, err := operand()
	for err == nil && p.accept(name, word) {
		var right expr
		right, err = operand()
		left = &logicExpr{and: word == "and", left: left, right: right}
	}
	return left, err
}

func (p *parser) parseNot() (expr, error) {
	if !p.accept(name, "not") {
		return p.parseCompare()
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	e, err := p.parseNot()
	return &notExpr{e}, err
}

var comparisons = []string{"==", "!=", "<", "<=", ">", ">="}

func (p *parser) parseCompare() (expr, error) {
	first, err := p.parseSum()
	if err != nil {
		return nil, err
	}
	out := &compareExpr{first: first}
	for {
		op := ""
		switch t := p.peek(); {
		case t.kind == symbol && slices.Contains(comparisons, t.text):
			op = p.next().text
		case p.accept(name, "in"):
			op = "in"
		case p.is(name, "not") && p.tokens[p.at+1].kind == name && p.tokens[p.at+1].text == "in":
			p.at += 2
			op = "not in"
		default:
			if len(out.ops) == 0 {
				return first, nil
			}
			return out, nil
		}
		right, err := p.parseSum()
		if err != nil {
			return nil, err
		}
		out.ops = append(out.ops, op)
		out.rest = append(out.rest, right)
	}
}

// Binary operators from loose to tight.
func (p *parser) parseSum() (expr, error)     { return p.binary(p.parseConcat, "+", "-") }
func (p *parser) parseConcat() (expr, error)  { return p.binary(p.parseProduct, "~") }
func (p *parser) parseProduct() (expr, error) { return p.binary(p.parsePower, "*", "/", "//", "%") }
func (p *parser) parsePower() (expr, error) {
	return p.binary(func() (expr, error) { return p.parseUnary(true) }, "**")
}

func (p *parser) binary(operand func() (expr, error), ops ...string) (expr, error) {
	left, err := operand()
	for err == nil && p.peek().kind == symbol && slices.Contains(ops, p.peek().text) {
		op := p.next().text
		var right expr
		right, err = operand()
		switch safe := markup(left); {
		case op != "+" || safe == markup(right):
		case safe:
			right = &filterExpr{of: right, name: "escape"}
		default:
			left = &filterExpr{of: left, name: "escape"}
		}
		left = &binaryExpr{op, left, right}
	}
	return left, err
}

// markup tells whether an expression is what the filter safe gives, or a sum with it: Python escapes as HTML what is
// added to that.
func markup(e expr) bool {
	if f, ok := e.(*filterExpr); ok {
		return slices.Contains([]string{"safe", "escape", "e"}, f.name)
	}
	b, ok := e.(*binaryExpr)
	return ok && b.op == "+" && (markup(b.left) || markup(b.right))
}

// parseUnary reads a sign and what it binds to, or a value; filters and tests follow unless they belong to a sign.
func (p *parser) parseUnary(filters bool) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	var e expr
	var err error
	switch {
	case p.accept(symbol, "-"):
		e, err = p.parseUnary(false)
		e = &binaryExpr{"-", nil, e}
	case p.accept(symbol, "+"):
		e, err = p.parseUnary(false)
		e = &binaryExpr{"+", nil, e}
	default:
		e, err = p.parsePrimary()
	}
	if err != nil {
		return nil, err
	}
	if e, err = p.parsePostfix(e); err != nil || !filters {
		return e, err
	}
	return p.parseFilters(e)
}

func (p *parser) parsePrimary() (expr, error) {
	t := p.peek()
	p.at = min(p.at+1, len(p.tokens)-1)
	switch t.kind {
	case name:
		return nameOrConst(t.text), nil
	case text:
		s := t.text
		for p.peek().kind == text {
			s += p.next().text
		}
		return &constExpr{s}, nil
	case whole, real:
		return &constExpr{t.num}, nil
	case symbol:
		switch t.text {
		case "(":
			return p.parseParen()
		case "[":
			items, err := p.parseItems("]")
			return &listExpr{items: items}, err
		case "{":
			return p.parseMap()
		}
	}
	return nil, fmt.Errorf("expected a value, found %s", t)
}

func nameOrConst(s string) expr {
	switch s {
	case "true", "True":
		return &constExpr{true}
	case "false", "False":
		return &constExpr{false}
	case "none", "None":
		return &constExpr{nil}
	}
	return nameExpr(s)
}

func (p *parser) parseParen() (expr, error) {
	if p.accept(symbol, ")") {
		return &listExpr{tuple: true}, nil
	}
	e, err := p.parseTuple()
	if err != nil {
		return nil, err
	}
	return e, p.expect(symbol, ")")
}

// parseItems reads expressions up to the closing symbol; a comma may follow the last.
func (p *parser) parseItems(end string) ([]expr, error) {
	var out []expr
	for !p.accept(symbol, end) {
		if len(out) > 0 {
			if err := p.expect(symbol, ","); err != nil {
				return nil, err
			}
			if p.accept(symbol, end) {
				break
			}
		}
		e, err := p.parseExpr()
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

func (p *parser) parseMap() (expr, error) {
	out := &mapExpr{}
	for !p.accept(symbol, "}") {
		if len(out.keys) > 0 {
			if err := p.expect(symbol, ","); err != nil {
				return nil, err
			}
			if p.accept(symbol, "}") {
				break
			}
		}
		k, err := p.parseExpr()
		if err != nil {
			return nil, err
		}
		if err := p.expect(symbol, ":"); err != nil {
			return nil, err
		}
		v, err := p.parseExpr()
		if err != nil {
			return nil, err
		}
		out.keys, out.values = append(out.keys, k), append(out.values, v)
	}
	return out, nil
}

// parsePostfix reads attributes, subscripts and calls.
func (p *parser) parsePostfix(e expr) (expr, error) {
	for n := 0; ; n++ {
		if n > 4*depthMax {
			return nil, fmt.Errorf("over %d attributes, subscripts and calls in a row", 4*depthMax)
		}
		switch {
		case p.accept(symbol, "."):
			t := p.next()
			switch t.kind {
			case name:
				e = &attrExpr{of: e, name: t.text}
			case whole:
				e = &indexExpr{of: e, index: &constExpr{t.num}}
			default:
				return nil, fmt.Errorf("expected a name behind '.', found %s", t)
			}
		case p.accept(symbol, "["):
			sub, err := p.parseSubscript(e)
			if err != nil {
				return nil, err
			}
			e = sub
		case p.accept(symbol, "("):
			call, err := p.parseArgs()
			if err != nil {
				return nil, err
			}
			e = &callExpr{fn: e, args: call}
		default:
			return e, nil
		}
	}
}

// parseSubscript reads an index or a slice behind '['.
func (p *parser) parseSubscript(of expr) (expr, error) {
	var parts [3]expr
	n := 0
	for {
		if !p.is(symbol, ":") && !p.is(symbol, "]") {
			e, err := p.parseExpr()
			if err != nil {
				return nil, err
			}
			parts[n] = e
		}
		if n < 2 && p.accept(symbol, ":") {
			n++
			continue
		}
		if err := p.expect(symbol, "]"); err != nil {
			return nil, err
		}
		break
	}
	if n == 0 {
		if parts[0] == nil {
			return nil, fmt.Errorf("a subscript is empty")
		}
		return &indexExpr{of: of, index: parts[0]}, nil
	}
	return &sliceExpr{of, parts}, nil
}

// parseArgs reads the arguments of a call behind '('.
func (p *parser) parseArgs() (args argExprs, err error) {
	for first := true; !p.accept(symbol, ")"); first = false {
		if !first {
			if err := p.expect(symbol, ","); err != nil {
				return args, err
			}
			if p.accept(symbol, ")") {
				break
			}
		}
		if p.is(symbol, "*") || p.is(symbol, "**") {
			return args, fmt.Errorf("unpacking arguments with * is not supported")
		}
		key := ""
		if next := p.tokens[min(p.at+1, len(p.tokens)-1)]; p.peek().kind == name && next.kind == symbol &&
			next.text == "=" {
			key = p.next().text
			p.next()
		} else if len(args.names) > 0 {
			return args, fmt.Errorf("a positional argument follows a named one")
		}
		e, err := p.parseExpr()
		if err != nil {
			return args, err
		}
		if key == "" {
			args.pos = append(args.pos, e)
		} else {
			args.names, args.named = append(args.names, key), append(args.named, e)
		}
	}
	return args, nil
}

// parseFilters reads filters, tests and calls of their results.
func (p *parser) parseFilters(e expr) (expr, error) {
	var err error
	for n := 0; err == nil; n++ {
		if n > 4*depthMax {
			return nil, fmt.Errorf("over %d filters and tests in a row", 4*depthMax)
		}
		switch {
		case p.is(symbol, "|"):
			e, err = p.parseFilter(e)
		case p.accept(name, "is"):
			e, err = p.parseTest(e)
		case p.accept(symbol, "("):
			var args argExprs
			args, err = p.parseArgs()
			e = &callExpr{fn: e, args: args}
		default:
			return e, nil
		}
	}
	return nil, err
}

// parseFilter reads '|' (or the word in its place), a filter's name and arguments.
func (p *parser) parseFilter(of expr) (*filterExpr, error) {
	p.next()
	n, err := p.ident()
	if err != nil {
		return nil, err
	}
	out := &filterExpr{of: of, name: n}
	if p.accept(symbol, "(") {
		out.args, err = p.parseArgs()
	}
	return out, err
}

// parseTest reads what follows "is". An argument may stand without parentheses; as in Jinja any word but
// else, or and and is taken for one, so "x is defined if y" does not parse.
func (p *parser) parseTest(of expr) (expr, error) {
	negate := p.accept(name, "not")
	n, err := p.ident()
	if err != nil {
		return nil, err
	}
	out := &testExpr{of: of, name: n, negate: negate}
	t := p.peek()
	switch {
	case p.accept(symbol, "("):
		out.args, err = p.parseArgs()
	case p.is(name, "is"):
		return nil, fmt.Errorf("tests cannot be chained with 'is'")
	case t.kind == text, t.kind == whole, t.kind == real, t.kind == symbol && (t.text == "[" || t.text == "{"),
		t.kind == name && !slices.Contains([]string{"else", "or", "and"}, t.text):
		var arg expr
		if arg, err = p.parsePrimary(); err == nil {
			arg, err = p.parsePostfix(arg)
		}
		out.args.pos = []expr{arg}
	}
	return out, err
}
