package maths

import (
	"errors"
	"math/big"
	"slices"
	"strings"
)

// depthMost and tokensMost bound what is read; longer texts are no answers that anybody asked for.
const (
	depthMost  = 64
	tokensMost = 512
	digitsMost = 400
)

var (
	errDeep  = errors.New("it is nested too deep")
	errWords = errors.New("it is a text")
)

// op is what a node does with its parts.
type op string

const (
	opNumber   op = "number"
	opSymbol   op = "symbol"
	opAdd      op = "+"
	opMul      op = "*"
	opDiv      op = "/"
	opPow      op = "^"
	opNeg      op = "-"
	opPM       op = "±" // its one part, with either sign
	opCall     op = "call"
	opPercent  op = "%"
	opDegrees  op = "°"
	opSet      op = "set"
	opTuple    op = "tuple"
	opInterval op = "interval" // name has the brackets
	opUnion    op = "∪"
	opRelation op = "relation" // name has the signs between the parts, a space between two
	opMatrix   op = "matrix"   // parts are rows, tuples
)

// node is an expression.
type node struct {
	op      op
	name    string
	value   *big.Rat // of a number
	decimal bool     // of a number that has a point
	parts   []*node
}

func of(o op, parts ...*node) *node { return &node{op: o, parts: parts} }

func call(name string, parts ...*node) *node { return &node{op: opCall, name: name, parts: parts} }

// parser reads tokens by descent: lists, unions, relations, sums, products, powers.
type parser struct {
	in   []token
	at   int
	deep int
	bars int // absolute values that are open
}

// parse reads all of a text as mathematics.
func parse(text string) (*node, error) {
	tokens, err := lex(text)
	if err != nil {
		return nil, err
	}
	for len(tokens) > 0 && tokens[len(tokens)-1].kind == sign && strings.Contains(".,;:?", tokens[len(tokens)-1].text) {
		tokens = tokens[:len(tokens)-1] // the sentence's
	}
	tokens = unitless(tokens)
	switch {
	case len(tokens) == 0:
		return nil, errors.New("it is empty")
	case len(tokens) > tokensMost:
		return nil, errors.New("it is too long")
	}
	p := &parser{in: tokens}
	list, err := p.list()
	if err != nil {
		return nil, err
	}
	if p.at < len(p.in) {
		return nil, errors.New("its " + p.peek().text + " follows nothing")
	}
	if len(list) > 1 {
		return spread(of(opSet, list...)), nil
	}
	return spread(list[0]), nil
}

// unitless leaves out words behind an expression, with their exponents: units.
func unitless(tokens []token) []token {
	cut := slices.IndexFunc(tokens, func(t token) bool { return t.kind == word })
	if cut <= 0 {
		return tokens
	}
	for _, t := range tokens[cut:] {
		unit := t.kind == word || t.kind == sign && strings.Contains("^/.{}*-", t.text) ||
			t.kind == number && (t.text == "2" || t.text == "3" || t.text == "1") || t.kind == letter && units[t.text]
		if !unit {
			return tokens
		}
	}
	if tokens[cut-1].kind == sign && strings.Contains("=<>+-*^,/", tokens[cut-1].text) {
		return tokens
	}
	return tokens[:cut]
}

func (p *parser) peek() token {
	if p.at < len(p.in) {
		return p.in[p.at]
	}
	return token{kind: ending}
}

func (p *parser) next() token { t := p.peek(); p.at++; return t }

// take skips a token where it is there.
func (p *parser) take(texts ...string) bool {
	t := p.peek()
	if (t.kind == sign || t.kind == command) && slices.Contains(texts, t.text) {
		p.at++
		return true
	}
	return false
}

func (p *parser) need(text string) error {
	if p.take(text) {
		return nil
	}
	return errors.New("it lacks a " + text)
}

func (p *parser) list() ([]*node, error) {
	if p.deep++; p.deep > depthMost {
		return nil, errDeep
	}
	defer func() { p.deep-- }()
	var out []*node
	for {
		x, err := p.union()
		if err != nil {
			return nil, err
		}
		out = append(out, x)
		if !p.take(",", ";") {
			return out, nil
		}
		for p.take(",", ";") { // "1, and 2"
		}
	}
}

func (p *parser) union() (*node, error) {
	x, err := p.relation()
	if err != nil || p.peek().text != `\cup` {
		return x, err
	}
	all := of(opUnion, x)
	for p.take(`\cup`) {
		y, err := p.relation()
		if err != nil {
			return nil, err
		}
		all.parts = append(all.parts, y)
	}
	return all, nil
}

var relations = []string{"=", "<", ">", `\le`, `\ge`, `\ne`, `\in`, `\approx`}

func (p *parser) relation() (*node, error) {
	x, err := p.sum()
	if err != nil || !slices.Contains(relations, p.peek().text) {
		return x, err
	}
	all := of(opRelation, x)
	for slices.Contains(relations, p.peek().text) {
		all.name = strings.TrimSpace(all.name + " " + p.next().text)
		y, err := p.sum()
		if err != nil {
			return nil, err
		}
		all.parts = append(all.parts, y)
	}
	return all, nil
}

func (p *parser) sum() (*node, error) {
	var out *node
	for first := true; ; first = false {
		o := opAdd
		switch {
		case p.take("+"):
		case p.take("-"):
			o = opNeg
		case p.take(`\pm`, `\mp`):
			o = opPM
		case !first:
			return out, nil
		}
		x, err := p.signed(o)
		if err != nil {
			return nil, err
		}
		if first {
			out = x
		} else {
			out = of(opAdd, out, x)
		}
	}
}

// signed is a term with the sign before it.
func (p *parser) signed(o op) (*node, error) {
	for p.peek().text == "-" || p.peek().text == "+" {
		if p.next().text == "-" {
			if o == opNeg {
				o = opAdd
			} else if o == opAdd {
				o = opNeg
			}
		}
	}
	x, err := p.product()
	if err != nil || o == opAdd {
		return x, err
	}
	return of(o, x), nil
}

func (p *parser) product() (*node, error) {
	out, err := p.power()
	if err != nil {
		return nil, err
	}
	for {
		o := opMul
		switch {
		case p.take("*"):
		case p.take("/", ":"):
			o = opDiv
		case p.begins():
			mixed, err := p.mixed(out)
			if err != nil {
				return nil, err
			}
			if mixed != nil {
				out = mixed
				continue
			}
		default:
			return out, nil
		}
		negative := o != opMul || p.in[p.at-1].text == "*"
		if negative && p.take("-") {
			x, err := p.power()
			if err != nil {
				return nil, err
			}
			out = of(o, out, of(opNeg, x))
			continue
		}
		x, err := p.power()
		if err != nil {
			return nil, err
		}
		out = of(o, out, x)
	}
}

// begins reports whether what follows can be multiplied without a sign.
func (p *parser) begins() bool {
	switch t := p.peek(); t.kind {
	case number, letter:
		return true
	case sign:
		return t.text == "(" || t.text == "{" || t.text == "[" || t.text == "|" && p.bars == 0
	case command:
		return t.text == `\{` || greek[t.text[1:]] || known[t.text[1:]] || strings.HasPrefix(t.text, `\begin`)
	}
	return false
}

// mixed reads the fraction of a mixed number, 1\frac12 or 1 1/2, nil where there is none.
func (p *parser) mixed(whole *node) (*node, error) {
	if whole.op != opNumber || whole.decimal {
		return nil, nil
	}
	t, rest := p.peek(), p.in[p.at:]
	if t.text == `\frac` {
		before := p.at
		x, err := p.power()
		if err != nil {
			return nil, err
		}
		if x.op == opDiv && x.parts[0].op == opNumber && x.parts[1].op == opNumber {
			return of(opAdd, whole, x), nil
		}
		p.at = before
		return nil, nil
	}
	if t.kind == number && len(rest) > 2 && rest[1].text == "/" && rest[2].kind == number {
		p.at += 3
		a, err := literal(t.text)
		if err != nil {
			return nil, err
		}
		b, err := literal(rest[2].text)
		if err != nil {
			return nil, err
		}
		return of(opAdd, whole, of(opDiv, a, b)), nil
	}
	return nil, nil
}

func literal(text string) (*node, error) {
	if len(text) > digitsMost {
		return nil, errors.New("its number is too long")
	}
	x, ok := new(big.Rat).SetString(strings.TrimPrefix(text, "+"))
	if !ok {
		return nil, errors.New("its " + text + " is no number")
	}
	return &node{op: opNumber, value: x, decimal: strings.ContainsAny(text, ".eE")}, nil
}

// spread makes a set of the two values of an expression with ±.
func spread(n *node) *node {
	if n.op == opSet || n.op == opTuple || n.op == opUnion || n.op == opRelation {
		var parts []*node
		for _, x := range n.parts {
			if x = spread(x); x.op == opSet && n.op == opSet {
				parts = append(parts, x.parts...)
			} else {
				parts = append(parts, x)
			}
		}
		out := *n
		out.parts = parts
		return &out
	}
	if !has(n, opPM) {
		return n
	}
	return of(opSet, pick(n, opAdd), pick(n, opNeg))
}

func has(n *node, o op) bool {
	return n.op == o || slices.ContainsFunc(n.parts, func(x *node) bool { return has(x, o) })
}

// pick gives an expression's ± one of its signs.
func pick(n *node, o op) *node {
	out := *n
	out.parts = make([]*node, len(n.parts))
	for i, x := range n.parts {
		out.parts[i] = pick(x, o)
	}
	if n.op == opPM {
		if out.op = o; o == opAdd {
			return out.parts[0]
		}
	}
	return &out
}
