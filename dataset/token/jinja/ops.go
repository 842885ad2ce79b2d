package jinja

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// arith is Python's arithmetic on numbers, and + and * on strings and lists, and % on strings.
func arith(s *state, op string, a, b any) (any, error) {
	for _, v := range []any{a, b} {
		if u, ok := v.(Undefined); ok {
			return nil, undefinedErr(u)
		}
	}
	if x, ok := integer(a); ok {
		if y, ok := integer(b); ok && op != "/" && !(op == "**" && y < 0) {
			return intOp(op, x, y)
		}
	}
	if x, ok := number(a); ok {
		if y, ok := number(b); ok {
			return floatOp(op, x, y)
		}
	}
	switch op {
	case "+":
		return concat(s, a, b)
	case "*":
		return repeat(s, a, b)
	case "%":
		if f, ok := a.(string); ok {
			return percent(s, f, b)
		}
	}
	return nil, fmt.Errorf("unsupported operands for %s: %s and %s", op, quoteType(a), quoteType(b))
}

// concat adds texts or lists; two of different kinds are an error, as in Python.
func concat(s *state, a, b any) (any, error) {
	if x, ok := a.(string); ok {
		if y, ok := b.(string); ok {
			return x + y, s.chargeText(len(x) + len(y))
		}
		return nil, fmt.Errorf("can only concatenate str (not \"%s\") to str", typeName(b))
	}
	x, okX := a.(*List)
	y, okY := b.(*List)
	if !okX || !okY || x.tuple != y.tuple {
		return nil, fmt.Errorf("unsupported operands for +: %s and %s", quoteType(a), quoteType(b))
	}
	if err := s.charge(1 + len(x.elems) + len(y.elems)); err != nil {
		return nil, err
	}
	return newList(append(x.elems[:len(x.elems):len(x.elems)], y.elems...), x.tuple), nil
}

// repeat repeats a text or a list, with the number on either side; the length is checked before it is made.
func repeat(s *state, a, b any) (any, error) {
	n, ok := integer(b)
	if !ok {
		a, n, ok = swapCount(a, b)
	}
	n = max(n, 0)
	switch x := a.(type) {
	case string:
		if !ok || n > int64(outputMax/max(len(x), 1)) {
			break
		}
		return strings.Repeat(x, int(n)), s.chargeText(len(x) * int(n))
	case *List:
		if !ok || n > int64(stepsMax/max(len(x.elems), 1)) {
			break
		}
		var out []any
		if err := s.charge(len(x.elems) * int(n)); err != nil {
			return nil, err
		}
		for range n {
			out = append(out, x.elems...)
		}
		return newList(out, x.tuple), nil
	}
	return nil, fmt.Errorf("cannot repeat %s by %s, or the result is too long", quoteType(a), quoteType(b))
}

func swapCount(a, b any) (any, int64, bool) {
	n, ok := integer(a)
	return b, n, ok
}

// intOp computes on 64-bit integers and reports an overflow, where Python would go on with longer ones.
func intOp(op string, x, y int64) (any, error) {
	out, ok := int64(0), true
	switch op {
	case "+":
		out = x + y
		ok = (out > x) == (y > 0)
	case "-":
		out = x - y
		ok = (out < x) == (y > 0)
	case "*":
		hi, lo := bits.Mul64(uint64(max(x, -x)), uint64(max(y, -y)))
		out = x * y
		ok = hi == 0 && lo <= math.MaxInt64
	case "//", "%":
		if y == 0 {
			return nil, fmt.Errorf("integer division or modulo by zero")
		}
		return floorDiv(op, x, y), nil
	case "**":
		return power(x, y)
	}
	if !ok {
		return nil, fmt.Errorf("%d %s %d is outside 64 bits", x, op, y)
	}
	return out, nil
}

// floorDiv rounds the quotient down; the remainder has the divisor's sign.
func floorDiv(op string, x, y int64) int64 {
	q, r := x/y, x%y
	if r != 0 && (r < 0) != (y < 0) {
		q, r = q-1, r+y
	}
	if op == "%" {
		return r
	}
	return q
}

func power(x, y int64) (any, error) {
	out := any(int64(1))
	for range min(y, 64) {
		var err error
		if out, err = intOp("*", out.(int64), x); err != nil {
			return nil, err
		}
	}
	if y > 64 && x != 0 && x != 1 && x != -1 {
		return nil, fmt.Errorf("%d ** %d is outside 64 bits", x, y)
	}
	if x == -1 && y%2 != 0 {
		return int64(-1), nil
	}
	return out, nil
}

func floatOp(op string, x, y float64) (any, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		return math.Pow(x, y), nil
	}
	if y == 0 {
		return nil, fmt.Errorf("division by zero")
	}
	switch op {
	case "/":
		return x / y, nil
	case "//":
		return math.Floor(x / y), nil
	}
	r := math.Mod(x, y)
	if r != 0 && (r < 0) != (y < 0) {
		r += y
	}
	return r, nil
}

// percent is Python's "…" % values for %s, %r, %d, %i, %f and %x with flags, width and precision.
func percent(s *state, format string, values any) (any, error) {
	args := []any{values}
	if l, ok := values.(*List); ok && l.tuple {
		args = l.elems
	}
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(format, "%")
		out.WriteString(before)
		if !ok {
			break
		}
		n := 0
		for n < len(rest) && strings.IndexByte("0123456789.+- #", rest[n]) >= 0 {
			n++
		}
		if n >= len(rest) || n > 8 {
			return nil, fmt.Errorf("incomplete format")
		}
		spec, verb := rest[:n], rest[n]
		format = rest[n+1:]
		if verb == '%' {
			out.WriteByte('%')
			continue
		}
		if len(args) == 0 {
			return nil, fmt.Errorf("not enough arguments for format string")
		}
		text, err := percentOne(s, spec, verb, args[0])
		if err != nil {
			return nil, err
		}
		args = args[1:]
		out.WriteString(text)
	}
	if len(args) > 0 && args[0] != values {
		return nil, fmt.Errorf("not all arguments converted during string formatting")
	}
	return out.String(), s.chargeText(out.Len())
}

func percentOne(s *state, spec string, verb byte, v any) (string, error) {
	if w, _, _ := strings.Cut(strings.TrimLeft(spec, "0+- #"), "."); len(w) > 4 {
		return "", fmt.Errorf("a width of %s characters is too wide", w)
	}
	switch verb {
	case 's':
		text, err := s.text(v)
		return fmt.Sprintf("%"+spec+"s", text), err
	case 'r':
		text := repr(v)
		return fmt.Sprintf("%"+spec+"s", text), s.chargeText(len(text))
	case 'd', 'i', 'x':
		x, ok := number(v)
		if n, isInt := integer(v); isInt {
			return fmt.Sprintf("%"+spec+strings.Replace(string(verb), "i", "d", 1), n), nil
		}
		if ok && verb != 'x' {
			return fmt.Sprintf("%"+spec+"d", int64(x)), nil
		}
	case 'f':
		if x, ok := number(v); ok {
			return fmt.Sprintf("%"+spec+"f", x), nil
		}
	}
	return "", fmt.Errorf("%%%s%c does not format %s", spec, verb, quoteType(v))
}

// attribute is a.name: a method or, for a dict, the value of a key.
func attribute(v any, name string) (any, error) {
	switch x := v.(type) {
	case Undefined:
		return nil, undefinedErr(x)
	case *namespace:
		if v, ok := x.vars.Get(name); ok {
			return v, nil
		}
	case *loop:
		return x.attribute(name), nil
	case *Map:
		if m := method(v, name); m != nil {
			return m, nil
		}
		if v, ok := x.Get(name); ok {
			return v, nil
		}
	case *List:
		if i := slices.Index(x.fields, name); i >= 0 {
			return x.elems[i], nil
		}
		if m := method(v, name); m != nil {
			return m, nil
		}
	default:
		if m := method(v, name); m != nil {
			return m, nil
		}
	}
	return undefined(quoteType(v) + " has no attribute " + name), nil
}

// subscript is a[index]: an element, a key's value or, failing that, an attribute.
func subscript(v, index any) (any, error) {
	if u, ok := v.(Undefined); ok {
		return nil, undefinedErr(u)
	}
	i, isInt := integer(index)
	switch x := v.(type) {
	case *Map:
		if hashable(index) {
			if v, ok := x.Get(index); ok {
				return v, nil
			}
		}
	case *List:
		if isInt {
			if i < 0 {
				i += int64(len(x.elems))
			}
			if i >= 0 && i < int64(len(x.elems)) {
				return x.elems[i], nil
			}
			return undefined(quoteType(v) + " has no element " + word(index)), nil
		}
	case string:
		if isInt {
			r := []rune(x)
			if i < 0 {
				i += int64(len(r))
			}
			if i >= 0 && i < int64(len(r)) {
				return string(r[i]), nil
			}
			return undefined("'str' has no element " + word(index)), nil
		}
	}
	if n, ok := index.(string); ok {
		return attribute(v, n)
	}
	return undefined(quoteType(v) + " has no element " + word(index)), nil
}

// slice is a[start:stop:step]; parts not given are nil.
func slice(v any, parts [3]any) (any, error) {
	var all []any
	switch x := v.(type) {
	case Undefined:
		return nil, undefinedErr(x)
	case string, *List:
		all, _ = items(x) // strings and lists have items
	default:
		return nil, fmt.Errorf("%s cannot be sliced", quoteType(v))
	}
	var bounds [3]*int64
	for i, p := range parts {
		if p == nil {
			continue
		}
		n, ok := integer(p)
		if !ok {
			return nil, fmt.Errorf("slice bounds must be integers, not %s", quoteType(p))
		}
		bounds[i] = &n
	}
	start, stop, step, err := sliceRange(bounds, int64(len(all)))
	if err != nil {
		return nil, err
	}
	var out []any
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, all[i])
	}
	if _, ok := v.(string); ok {
		return joinStrings(out), nil
	}
	return newList(out, v.(*List).tuple), nil
}

// sliceRange resolves bounds as Python's slice.indices does.
func sliceRange(b [3]*int64, n int64) (start, stop, step int64, err error) {
	step = 1
	if b[2] != nil {
		step = *b[2]
	}
	if step == 0 {
		return 0, 0, 0, fmt.Errorf("slice step cannot be zero")
	}
	lo, hi := int64(0), n
	start, stop = 0, n
	if step < 0 {
		lo, hi = -1, n-1
		start, stop = n-1, -1
	}
	clamp := func(p *int64, otherwise int64) int64 {
		if p == nil {
			return otherwise
		}
		i := *p
		if i < 0 {
			i = max(i, -n-1) + n
		}
		return min(max(i, lo), hi)
	}
	if step > n || step < -n {
		step = (n + 1) * (1 - 2*toInt(step < 0))
	}
	return clamp(b[0], start), clamp(b[1], stop), step, nil
}

func joinStrings(parts []any) string {
	var out strings.Builder
	for _, p := range parts {
		out.WriteString(p.(string))
	}
	return out.String()
}

// loop is the variable "loop" inside a for statement.
type loop struct {
	items   []any
	index   int // of the current item, from 0
	changed *List
	depth   int                                // calls of the loop that it lies in
	again   func(s *state, v any) (any, error) // runs the loop over other items, if it is recursive
}

func (l *loop) attribute(name string) any {
	n := len(l.items)
	at := func(i int, what string) any {
		if i < 0 || i >= n {
			return undefined(what)
		}
		return l.items[i]
	}
	switch name {
	case "index":
		return int64(l.index + 1)
	case "index0":
		return int64(l.index)
	case "revindex":
		return int64(n - l.index)
	case "revindex0":
		return int64(n - l.index - 1)
	case "first":
		return l.index == 0
	case "last":
		return l.index == n-1
	case "length":
		return int64(n)
	case "depth":
		return int64(l.depth + 1)
	case "depth0":
		return int64(l.depth)
	case "previtem":
		return at(l.index-1, "there is no previous item")
	case "nextitem":
		return at(l.index+1, "there is no next item")
	case "cycle":
		return &function{"cycle", l.cycle}
	case "changed":
		return &function{"changed", l.hasChanged}
	}
	return undefined("loop has no attribute " + strconv.Quote(name))
}

func (l *loop) cycle(_ *state, a arguments) (any, error) {
	if len(a.pos) == 0 {
		return nil, fmt.Errorf("no items for cycling given")
	}
	return a.pos[l.index%len(a.pos)], nil
}

func (l *loop) hasChanged(_ *state, a arguments) (any, error) {
	now := list(a.pos)
	if l.changed != nil && equal(l.changed, now) {
		return false, nil
	}
	l.changed = now
	return true, nil
}
