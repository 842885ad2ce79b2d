package grammar

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// decimal is a bound of numbers at or above 0: digits before and behind the point, these without zeros at their end.
type decimal struct {
	whole  int64
	behind string
	strict bool // the bound itself is none of them
}

// bounds are those of numbers, nil for none.
type bounds struct{ low, high *limit }

// limit is a bound with the key that it is of.
type limit struct {
	key    string
	at     *big.Rat
	strict bool
}

// boundsOf reads a schema's bounds. Where two keys bound one side the tighter one holds.
func boundsOf(k *keys) (b bounds, err error) {
	if raw, ok := k.has("format"); ok { // OpenAPI's widths, which describe
		var name string
		if json.Unmarshal(raw, &name) != nil || !slices.Contains([]string{"int32", "int64", "float", "double"}, name) {
			return b, k.fault("format", "is %s, and none of int32, int64, float, double", clip(raw))
		}
	}
	for _, x := range []struct {
		key    string
		sign   int
		to     **limit
		strict bool
	}{{"minimum", 1, &b.low, false}, {"exclusiveMinimum", 1, &b.low, true}, {"maximum", -1, &b.high, false},
		{"exclusiveMaximum", -1, &b.high, true}} {
		raw, ok := k.has(x.key)
		if !ok {
			continue
		}
		at, err := rational(raw)
		if err != nil {
			return b, k.fault(x.key, "is %s, and no number of at most %d digits", clip(raw), digitsMost)
		}
		if was := *x.to; was == nil || at.Cmp(was.at)*x.sign >= 0 {
			*x.to = &limit{x.key, at, x.strict}
		}
	}
	return b, nil
}

// rational is a number of at most digitsMost digits before the point and as many behind.
func rational(raw json.RawMessage) (*big.Rat, error) {
	var x float64
	if err := json.Unmarshal(raw, &x); err != nil || x > integerMost || x < -integerMost || len(raw) > 64 {
		return nil, fmt.Errorf("no such number")
	}
	at, ok := new(big.Rat).SetString(string(raw))
	if !ok || !new(big.Rat).Mul(at, ten(digitsMost)).IsInt() {
		return nil, fmt.Errorf("no such number")
	}
	return at, nil
}

// ten is a power of ten.
func ten(n int) *big.Rat {
	return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil))
}

// magnitude is a bound's distance from 0.
func (l *limit) magnitude() decimal {
	whole, behind, _ := strings.Cut(new(big.Rat).Abs(l.at).FloatString(digitsMost), ".")
	d := decimal{behind: strings.TrimRight(behind, "0"), strict: l.strict}
	_, _ = fmt.Sscan(whole, &d.whole) // digits
	return d
}

// number is the expression of numbers within bounds, without exponents where there are any.
func (s *schema) number(k *keys) (node, error) {
	b, err := boundsOf(k)
	if err != nil {
		return node{}, err
	}
	if raw, ok := k.has("multipleOf"); ok {
		return s.multiples(k, raw, b, false)
	}
	if b.low == nil && b.high == nil {
		return ref(ruleNumber), nil
	}
	zero, least, most := new(big.Rat), decimal{}, decimal{whole: integerMost}
	var out []node
	if b.low == nil || b.low.at.Sign() < 0 {
		from, to := least, most
		if b.high != nil && b.high.at.Sign() <= 0 {
			from = b.high.magnitude()
		}
		if b.low != nil {
			to = b.low.magnitude()
		}
		if n, ok := between(from, to); ok {
			out = append(out, seq(lit("-"), n))
		}
	}
	if b.high == nil || b.high.at.Cmp(zero) >= 0 {
		from, to := least, most
		if b.low != nil && b.low.at.Sign() >= 0 {
			from = b.low.magnitude()
		}
		if b.high != nil {
			to = b.high.magnitude()
		}
		if n, ok := between(from, to); ok {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return node{}, k.fault("minimum", "leaves no number under maximum")
	}
	return alt(out...), nil
}

// side is what bounds the digits behind the point on one side, where anything does.
type side struct {
	digits     string
	strict, on bool
}

// next is the digit that a bound has, and what bounds those behind it.
func (s side) next(of byte) (byte, side) {
	if !s.on {
		return of, s
	}
	if s.digits == "" {
		return '0', s
	}
	return s.digits[0], side{s.digits[1:], s.strict, true}
}

// between is the numbers from lo to hi, and false where there are none.
func between(lo, hi decimal) (node, bool) {
	var out []node
	add := func(whole int64, from, to side) {
		if n, ok := fraction(from, to); ok {
			out = append(out, seq(lit(fmt.Sprint(whole)), n))
		}
	}
	from, to := side{lo.behind, lo.strict, true}, side{hi.behind, hi.strict, true}
	switch {
	case lo.whole == hi.whole:
		add(lo.whole, from, to)
	case lo.whole < hi.whole:
		add(lo.whole, from, side{})
		if lo.whole+1 < hi.whole {
			any, _ := fraction(side{}, side{})
			out = append(out, seq(naturals(lo.whole+1, hi.whole-1), any))
		}
		add(hi.whole, side{}, to)
	}
	return alt(out...), len(out) > 0
}

// fraction is what may stand behind the digits before the point, and false for no such thing: nothing, or a point and
// digits, at or above lo and at or below hi.
func fraction(lo, hi side) (node, bool) {
	none := !(lo.on && (lo.digits != "" || lo.strict)) && !(hi.on && hi.digits == "" && hi.strict)
	n, ok := behindPoint(lo, hi, digitsMost, true)
	switch {
	case ok && none:
		return opt(seq(lit("."), n)), true
	case ok:
		return seq(lit("."), n), true
	}
	return seq(), none
}

// behindPoint is up to left digits behind the point, of which the first must be there.
func behindPoint(lo, hi side, left int, first bool) (node, bool) {
	if lo.on && lo.digits == "" && !lo.strict {
		lo.on = false // what goes on is not below
	}
	if hi.on && hi.digits == "" && hi.strict || left == 0 && lo.on {
		return node{}, false
	}
	if !lo.on && !hi.on {
		return rep(set('0', '9'), map[bool]int{true: 1}[first], left), true
	}
	var out []node
	if !first && !lo.on { // it may end here: it is at or above lo then, and at or below hi
		out = append(out, seq())
	}
	a, behindLow := lo.next('0')
	z, behindHigh := hi.next('9')
	for c := a; c <= z && left > 0; c++ {
		onLow, onHigh := lo.on && c == a, hi.on && c == z
		if !onLow && !onHigh {
			to := z
			if hi.on {
				to--
			}
			out = append(out, seq(set(rune(c), rune(to)), rep(set('0', '9'), 0, left-1)))
			c = to
			continue
		}
		behindLow.on, behindHigh.on = onLow, onHigh
		if n, ok := behindPoint(behindLow, behindHigh, left-1, false); ok {
			out = append(out, seq(lit(string(rune(c))), n))
		}
	}
	return alt(out...), len(out) > 0
}

// multiplesListed bounds the multiples between two bounds, and residuesMost what is counted of those without.
const multiplesListed, residuesMost = 4096, 512

// multiples is the expression of multiples of a number: listed between bounds, or by what is left of each digit where
// there are none but 0.
func (s *schema) multiples(k *keys, raw json.RawMessage, b bounds, whole bool) (node, error) {
	by, err := rational(raw)
	if err != nil || by.Sign() <= 0 {
		return node{}, k.fault("multipleOf", "is %s, and no number above 0 of at most %d digits", clip(raw), digitsMost)
	}
	if whole { // integers that are multiples of p/q are those of p
		by.SetFrac(by.Num(), big.NewInt(1))
	}
	if b.low != nil && b.high != nil {
		first, last := quotient(b.low, by, 1), quotient(b.high, by, -1)
		if n := new(big.Int).Sub(last, first); n.Sign() < 0 || !n.IsInt64() || n.Int64() >= multiplesListed {
			return node{}, k.fault("multipleOf", "leaves more than %d numbers, or none, between the bounds", multiplesListed)
		}
		var out []node
		for x := first; x.Cmp(last) <= 0; x = new(big.Int).Add(x, big.NewInt(1)) {
			text := new(big.Rat).Mul(by, new(big.Rat).SetInt(x)).FloatString(digitsMost)
			out = append(out, lit(strings.TrimRight(strings.TrimRight(text, "0"), ".")))
		}
		return alt(out...), nil
	}
	for _, l := range []*limit{b.low, b.high} {
		if l != nil && l.at.Sign() != 0 {
			return node{}, k.fault("multipleOf", "with one bound, which is not 0, is not supported: give both")
		}
	}
	places := 0
	for x := new(big.Rat).Set(by); !x.IsInt(); places++ {
		x.Mul(x, ten(1))
	}
	m := new(big.Rat).Mul(by, ten(places)).Num()
	if !m.IsInt64() || m.Int64() > residuesMost {
		return node{}, k.fault("multipleOf", "is %s: without two bounds it is supported up to %d, digits behind the point aside",
			clip(raw), residuesMost)
	}
	return s.residues(int(m.Int64()), places, b), nil
}

// quotient is how many times a number goes into a bound, rounded into the bounds.
func quotient(l *limit, by *big.Rat, up int) *big.Int {
	q := new(big.Rat).Quo(l.at, by)
	n := new(big.Int).Div(q.Num(), q.Denom()) // rounds down
	switch exact := q.IsInt(); {
	case exact && l.strict:
		n.Add(n, big.NewInt(int64(up)))
	case !exact && up > 0:
		n.Add(n, big.NewInt(1))
	}
	return n
}

// residues is the numbers of up to places digits behind the point that are multiples of m in the last of them. A rule
// stands for what is left of the digits so far and how many there are.
func (s *schema) residues(m, places int, b bounds) node {
	s.names++
	name := fmt.Sprintf("%s multiple %d", s.prefix, s.names)
	rule := func(of string, n, left int) string { return fmt.Sprintf("%s %s%d %d", name, of, n, left) }
	scale := make([]int, places+1) // of what is left where so many places are still to come
	scale[0] = 1 % m
	for i := range places {
		scale[i+1] = scale[i] * 10 % m
	}
	var digits func(of string, n, left int) node
	digits = func(of string, n, left int) node { // behind a number that leaves left
		at := rule(of, n, left)
		if _, made := s.rules[at]; made {
			return ref(at)
		}
		s.rules[at] = node{}
		var out []node
		more, to := n < digitsMost, places
		if of == "." {
			more, to = n < places, places-n
		}
		if left*scale[to]%m == 0 && (of != "." || n > 0) {
			out = append(out, seq())
		}
		if of == "" && places > 0 {
			out = append(out, seq(lit("."), digits(".", 0, left)))
		}
		for c := 0; c < 10 && more && (of == "." || n > 0); c++ {
			out = append(out, seq(lit(string(rune('0'+c))), digits(of, n+1, (left*10+c)%m)))
		}
		s.rules[at] = alt(out...)
		return ref(at)
	}
	begins := []node{seq(lit("0"), digits("", digitsMost, 0))}
	if b.low != nil && b.low.strict || b.high != nil && b.high.strict {
		begins = nil
	}
	for c := 1; c < 10; c++ {
		begins = append(begins, seq(lit(string(rune('0'+c))), digits("", 1, c%m)))
	}
	n := alt(begins...)
	switch {
	case b.low != nil:
		return n
	case b.high != nil:
		return seq(lit("-"), n)
	}
	return seq(opt(lit("-")), n)
}
