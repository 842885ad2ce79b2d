package maths

import (
	"math"
	"math/big"
	"math/cmplx"
	"slices"
	"strings"
	"unicode"
)

// places are the decimals to which a decimal is compared: 0.333333 is 1/3, 0.3333 is not.
const places = 6

// near bounds how far two numbers that are not fractions are apart, as a share of the larger.
const near = 1e-11

// same compares a gold with an answer. The gold's form says what is asked: the answer x = 5 is 5, and 5 is x
// = 5, but y = 5 is not.
func same(gold, given *node) bool {
	gold, given = truncated(gold), truncated(given)
	switch {
	case equation(given) && !equation(gold):
		given = given.parts[len(given.parts)-1]
	case assignment(gold) && !equation(given):
		gold = gold.parts[len(gold.parts)-1]
	}
	if gold.op == opRelation && (given.op == opInterval || given.op == opTuple || given.op == opUnion) {
		if s := solved(gold); s != nil {
			gold = s
		}
	}
	switch {
	case gold.op == opRelation && given.op == opRelation:
		return sameRelation(gold, given)
	case gold.op == opRelation || given.op == opRelation:
		return false
	case gold.op == opMatrix || given.op == opMatrix:
		return gold.op == given.op && inOrder(gold.parts, given.parts)
	case several(gold) || several(given):
		return sameSets(gold, given)
	}
	return sameValues(gold, given)
}

func several(n *node) bool {
	return n.op == opSet || n.op == opTuple || n.op == opInterval || n.op == opUnion
}

func equation(n *node) bool {
	return n.op == opRelation && strings.Trim(n.name, "= ") == ""
}

// assignment reports whether an equation gives a symbol, or f(x), a value.
func assignment(n *node) bool {
	if !equation(n) {
		return false
	}
	left := n.parts[0]
	return left.op == opSymbol && !constants[left.name] || left.op == opMul && left.parts[0].op == opSymbol &&
		strings.Contains("fghFGPQpq", left.parts[0].name) && left.parts[1].op == opSymbol
}

// truncated leaves the ends of x = 2 + 3 = 5, and what x ∈ S is in.
func truncated(n *node) *node {
	if n.op != opRelation {
		return n
	}
	if n.name == `\in` {
		return n.parts[1]
	}
	if assignment(n) && len(n.parts) > 2 {
		return &node{op: opRelation, name: "=", parts: []*node{n.parts[0], n.parts[len(n.parts)-1]}}
	}
	return n
}

// solved is the interval of a < x < b and of x > a, nil for other relations.
func solved(n *node) *node {
	signs := strings.Fields(n.name)
	infinite := &node{op: opSymbol, name: `\infty`}
	parts := n.parts
	switch {
	case slices.Contains([]string{">", `\ge`}, signs[0]):
		return solved(turned(n))
	case len(parts) == 2 && parts[0].op == opSymbol:
		parts, signs = []*node{of(opNeg, infinite), parts[0], parts[1]}, []string{"<", signs[0]}
	case len(parts) == 2 && parts[1].op == opSymbol:
		parts, signs = []*node{parts[0], parts[1], infinite}, []string{signs[0], "<"}
	}
	if len(parts) != 3 || parts[1].op != opSymbol {
		return nil
	}
	bracket := []byte("()")
	for i, s := range signs {
		switch {
		case s == `\le`:
			bracket[i] = "[]"[i]
		case s != "<":
			return nil
		}
	}
	if string(bracket) == "()" {
		return of(opTuple, parts[0], parts[2])
	}
	return &node{op: opInterval, name: string(bracket), parts: []*node{parts[0], parts[2]}}
}

var mirrored = map[string]string{">": "<", "<": ">", `\ge`: `\le`, `\le`: `\ge`}

// turned is a relation read from its other end.
func turned(n *node) *node {
	out := &node{op: opRelation, parts: slices.Clone(n.parts)}
	slices.Reverse(out.parts)
	signs := strings.Fields(n.name)
	slices.Reverse(signs)
	for i, s := range signs {
		if m := mirrored[s]; m != "" {
			signs[i] = m
		}
	}
	out.name = strings.Join(signs, " ")
	return out
}

// sameRelation compares x < 3 and 3 > x, 2x + y = 3 and y = 3 - 2x.
func sameRelation(a, b *node) bool {
	if assignment(a) && assignment(b) {
		return sameValues(a.parts[0], b.parts[0]) && same(a.parts[1], b.parts[1]) || len(a.parts) == 2 &&
			len(b.parts) == 2 && proportional(a, b) != 0
	}
	if len(a.parts) != len(b.parts) {
		return false
	}
	for _, c := range []*node{b, turned(b)} {
		if a.name == c.name && inOrder(a.parts, c.parts) {
			return true
		}
	}
	if len(a.parts) != 2 {
		return false
	}
	k := proportional(a, b)
	return k > 0 && a.name == b.name || k < 0 && (turned(b).name == a.name || a.name == "=" && b.name == "=")
}

// proportional is the sign of the number by which the difference of a relation's sides is a multiple of that
// of another's, 0 for none.
func proportional(a, b *node) float64 {
	of := map[string]bool{}
	a.symbols(of)
	b.symbols(of)
	var k complex128
	n := 0
	for _, p := range points(of) {
		x, y := a.parts[0].at(p)-a.parts[1].at(p), b.parts[0].at(p)-b.parts[1].at(p)
		if !finite(x) || !finite(y) || y == 0 {
			continue
		}
		if n++; n == 1 {
			k = x / y
		} else if !close(k, x/y) {
			return 0
		}
	}
	if n < 3 || cmplx.Abs(k) < near {
		return 0
	}
	return real(k)
}

func inOrder(a, b []*node) bool {
	return slices.EqualFunc(a, b, same)
}

// inAnyOrder reports whether each of some finds another of the others.
func inAnyOrder(a, b []*node) bool {
	a, b = distinct(a), slices.Clone(distinct(b))
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		i := slices.IndexFunc(b, func(y *node) bool { return same(x, y) })
		if i < 0 {
			return false
		}
		b = slices.Delete(b, i, i+1)
	}
	return true
}

func distinct(all []*node) (out []*node) {
	for _, x := range all {
		if !slices.ContainsFunc(out, func(y *node) bool { return same(x, y) }) {
			out = append(out, x)
		}
	}
	return out
}

// sameSets compares sets, tuples, intervals and unions. A list without brackets is a set, and a tuple where a
// tuple is asked; a set of one is its element.
func sameSets(gold, given *node) bool {
	if gold.op == opUnion || given.op == opUnion {
		return gold.op == given.op && inAnyOrder(gold.parts, given.parts)
	}
	if gold.op == opInterval || given.op == opInterval {
		return gold.op == given.op && gold.name == given.name && inOrder(gold.parts, given.parts)
	}
	if gold.op != opTuple && gold.op != opSet {
		gold = of(opSet, gold)
	}
	if given.op != opTuple && given.op != opSet {
		given = of(opSet, given)
	}
	if gold.op == opTuple {
		return inOrder(gold.parts, given.parts)
	}
	return inAnyOrder(gold.parts, given.parts)
}

// sameValues compares expressions: as fractions where both are, where one is a decimal to six places, else by
// their values, at several points where they have variables.
func sameValues(gold, given *node) bool {
	x, y := gold.exact(), given.exact()
	decimal := lone(gold, true) || lone(given, true)
	if x != nil && y != nil {
		switch {
		case decimal:
			return rounded(x).Cmp(rounded(y)) == 0
		case lone(gold, false) && lone(given, false):
			return unpercent(gold).Cmp(unpercent(given)) == 0 // 50 % is 50, and 1/2
		}
		return x.Cmp(y) == 0
	}
	of := map[string]bool{}
	gold.symbols(of)
	given.symbols(of)
	n := 0
	for _, p := range points(of) {
		a, b := gold.at(p), given.at(p)
		switch {
		case !finite(a) && !finite(b):
			if len(of) == 0 {
				return a == b
			}
			continue
		case decimal && len(of) == 0 && finite(a) && finite(b):
			return math.Abs(real(a)-real(b)) <= 1.000001*math.Pow10(-places)/2+near && math.Abs(imag(a-b)) < near
		case !close(a, b):
			return false
		}
		n++
	}
	return n >= 3
}

// lone reports whether an expression is a number with its sign and per cent: of any kind that has a point, or
// a whole one.
func lone(n *node, decimal bool) bool {
	for n.op == opNeg || n.op == opPercent || n.op == opDegrees {
		n = n.parts[0]
	}
	return n.op == opNumber && n.decimal == decimal
}

func unpercent(n *node) *big.Rat {
	switch n.op {
	case opPercent, opDegrees:
		return unpercent(n.parts[0])
	case opNeg:
		return new(big.Rat).Neg(unpercent(n.parts[0]))
	}
	return n.value
}

// rounded is a number to six decimals, halves to even ones.
func rounded(x *big.Rat) *big.Int {
	scaled := new(big.Rat).Mul(x, big.NewRat(1_000_000, 1))
	double := new(big.Int).Mul(scaled.Num(), big.NewInt(2))
	double.Add(double, scaled.Denom())
	den := new(big.Int).Mul(scaled.Denom(), big.NewInt(2))
	q, m := new(big.Int).DivMod(double, den, new(big.Int))
	if m.Sign() == 0 && q.Bit(0) == 1 {
		q.Sub(q, big.NewInt(1))
	}
	return q
}

func finite(x complex128) bool { return !cmplx.IsNaN(x) && !cmplx.IsInf(x) }

func close(a, b complex128) bool {
	return finite(a) && finite(b) && cmplx.Abs(a-b) <= near*max(1e-3, cmplx.Abs(a), cmplx.Abs(b))
}

// said is a text as it is compared with another: its letters, digits and signs in lower case, without LaTeX's
// commands of layout, white space and what closes a sentence.
func said(text string) string {
	tokens, err := lex(text)
	if err != nil {
		tokens = []token{{text: text}}
	}
	var out strings.Builder
	for _, t := range tokens {
		out.WriteString(t.text)
	}
	s := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || r == '{' || r == '}' || r == '*' {
			return -1
		}
		return unicode.ToLower(r)
	}, out.String())
	s = strings.TrimRight(s, ".,;:!?")
	if len(s) == 3 && s[0] == '(' && s[2] == ')' {
		s = s[1:2] // a choice, (A)
	}
	return s
}
