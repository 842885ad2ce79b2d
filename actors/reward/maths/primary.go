package maths

import (
	"errors"
	"strings"
)

// known are the commands that begin an operand, beside letters.
var known = names("frac sqrt binom pi infty emptyset sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh " +
	"asinh log ln exp lfloor lceil bbR bbZ bbN bbQ bbC")

var functions = names("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh asinh log ln exp")

// power is an operand with what stands behind it: exponents, factorials, per cent, degrees, indices.
func (p *parser) power() (*node, error) {
	if p.deep++; p.deep > depthMost {
		return nil, errDeep
	}
	defer func() { p.deep-- }()
	x, err := p.operand()
	if err != nil {
		return nil, err
	}
	for {
		switch {
		case p.take("!"):
			x = call("!", x)
		case p.take("%"):
			x = of(opPercent, x)
		case p.take("^"):
			if p.take(`\circ`) {
				x = of(opDegrees, x)
				continue
			}
			y, degrees, err := p.exponent()
			if err != nil {
				return nil, err
			}
			if degrees {
				x = of(opDegrees, x)
			} else {
				x = of(opPow, x, y)
			}
		case p.take("_"):
			text, err := p.index()
			if err != nil {
				return nil, err
			}
			if x.op == opSymbol { // a number's base is not compared
				x = &node{op: opSymbol, name: x.name + "_" + text}
			}
		default:
			return x, nil
		}
	}
}

// exponent is what stands behind ^: a group, or one token, where ^10 is a number.
func (p *parser) exponent() (x *node, degrees bool, err error) {
	if p.peek().text == "{" && p.at+2 < len(p.in) && p.in[p.at+1].text == `\circ` && p.in[p.at+2].text == "}" {
		p.at += 3
		return nil, true, nil
	}
	if p.take("-") {
		x, err = p.operand()
		return of(opNeg, x), false, err
	}
	x, err = p.operand()
	return x, false, err
}

// index is the text of an index.
func (p *parser) index() (string, error) {
	if !p.take("{") {
		return p.next().text, nil
	}
	var out strings.Builder
	for !p.take("}") {
		t := p.next()
		if t.kind == ending {
			return "", errBraces
		}
		out.WriteString(t.text)
	}
	return out.String(), nil
}

func (p *parser) operand() (*node, error) {
	t := p.next()
	switch t.kind {
	case number:
		return literal(t.text)
	case letter:
		return &node{op: opSymbol, name: t.text}, nil
	case word:
		return nil, errWords
	case ending:
		return nil, errors.New("it ends within an expression")
	case command:
		return p.named(t.text)
	}
	switch t.text {
	case "(", "[":
		return p.bracket(t.text)
	case "{":
		list, err := p.list()
		if err == nil {
			err = p.need("}")
		}
		if err != nil {
			return nil, err
		}
		if len(list) > 1 {
			return of(opSet, list...), nil
		}
		return list[0], nil
	case "|":
		p.bars++
		x, err := p.sum()
		p.bars--
		if err == nil {
			err = p.need("|")
		}
		return call("abs", x), err
	}
	return nil, errors.New("its " + t.text + " follows nothing")
}

// bracket reads a group, a tuple or an interval.
func (p *parser) bracket(open string) (*node, error) {
	bars := p.bars
	p.bars = 0
	list, err := p.list()
	p.bars = bars
	if err != nil {
		return nil, err
	}
	shut := p.next().text
	switch {
	case shut != ")" && shut != "]":
		return nil, errors.New("its " + open + " is not closed")
	case len(list) == 1:
		return list[0], nil
	case len(list) == 2 && open+shut != "()":
		return &node{op: opInterval, name: open + shut, parts: list}, nil
	}
	return of(opTuple, list...), nil
}

// named reads what begins with a command.
func (p *parser) named(text string) (*node, error) {
	name := text[1:]
	switch {
	case name == "frac" || name == "binom":
		return p.pair(name)
	case name == "sqrt":
		return p.root()
	case name == "{":
		if p.take(`\}`) {
			return of(opSet), nil
		}
		list, err := p.list()
		if err == nil {
			err = p.need(`\}`)
		}
		return of(opSet, list...), err
	case name == "emptyset":
		return of(opSet), nil
	case name == "lfloor" || name == "lceil":
		x, err := p.sum()
		if err == nil {
			err = p.need(`\r` + name[1:])
		}
		return call(name[1:], x), err
	case functions[name]:
		return p.function(name)
	case strings.HasPrefix(name, "begin "):
		return p.matrix(name[len("begin "):])
	case name == "pi" || name == "infty" || greek[name] || strings.HasPrefix(name, "bb"):
		return &node{op: opSymbol, name: text}, nil
	}
	return nil, errors.New("its " + text + " is not known")
}

// argument is a braced expression, or one token; \frac12 has two.
func (p *parser) argument() (*node, error) {
	t := p.peek()
	if t.kind != number || len(t.text) == 1 {
		return p.operand()
	}
	p.in[p.at].text = t.text[1:]
	return literal(t.text[:1])
}

func (p *parser) pair(name string) (*node, error) {
	a, err := p.argument()
	if err != nil {
		return nil, err
	}
	var b *node
	if name == "frac" && p.peek().kind == number {
		b, err = p.operand() // \frac112 is 1/12
	} else {
		b, err = p.argument()
	}
	if name == "frac" {
		return of(opDiv, a, b), err
	}
	return call(name, a, b), err
}

func (p *parser) root() (*node, error) {
	degree := &node{op: opNumber, value: two}
	if p.peek().text == "[" {
		p.at++
		x, err := p.sum()
		if err == nil {
			err = p.need("]")
		}
		if err != nil {
			return nil, err
		}
		degree = x
	}
	x, err := p.argumentOfRoot()
	return call("root", x, degree), err
}

// argumentOfRoot takes all digits: √12 has no brace.
func (p *parser) argumentOfRoot() (*node, error) {
	if p.peek().kind == number {
		return p.operand()
	}
	return p.argument()
}

// function reads a function of one argument, which needs no bracket: \sin 2x, \log_2 8, \sin^2 x.
func (p *parser) function(name string) (*node, error) {
	var base, raised *node
	for {
		var err error
		switch {
		case name == "log" && p.take("_"):
			base, err = p.argument()
		case p.peek().text == "^":
			p.at++
			raised, _, err = p.exponent()
		default:
			return p.applied(name, base, raised)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (p *parser) applied(name string, base, raised *node) (*node, error) {
	bracketed := p.peek().text == "(" || p.peek().text == "{"
	x, err := p.power()
	for err == nil && !bracketed && p.begins() && !functions[strings.TrimPrefix(p.peek().text, `\`)] {
		var y *node
		y, err = p.power()
		x = of(opMul, x, y)
	}
	if err != nil {
		return nil, err
	}
	minus := raised != nil && raised.op == opNeg && raised.parts[0].op == opNumber
	if minus && raised.parts[0].value.Cmp(one) == 0 {
		name, raised = "arc"+name, nil
	}
	out := call(name, x)
	if base != nil {
		out.parts = append(out.parts, base)
	}
	if raised != nil {
		out = of(opPow, out, raised)
	}
	return out, nil
}

func (p *parser) matrix(env string) (*node, error) {
	if !strings.HasSuffix(env, "matrix") && env != "array" {
		return nil, errors.New("its \\begin{" + env + "} is not known")
	}
	if env == "array" && p.take("{") {
		for !p.take("}") {
			if p.next().kind == ending {
				return nil, errBraces
			}
		}
	}
	out, row := of(opMatrix), of(opTuple)
	for {
		x, err := p.sum()
		if err != nil {
			return nil, err
		}
		row.parts = append(row.parts, x)
		if p.take("&") {
			continue
		}
		out.parts = append(out.parts, row)
		row = of(opTuple)
		more := p.take(`\\`)
		if p.take(`\end ` + env) {
			return out, nil
		}
		if !more {
			return nil, errors.New("its matrix does not end")
		}
	}
}
