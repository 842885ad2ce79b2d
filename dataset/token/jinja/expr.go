package jinja

import "fmt"

// expr is a node that has a value.
type expr interface {
	eval(s *state, sc *scope) (any, error)
}

type (
	constExpr struct{ value any }
	nameExpr  string
	listExpr  struct {
		items []expr
		tuple bool
	}
	mapExpr   struct{ keys, values []expr }
	condExpr  struct{ cond, then, other expr } // other nil: Undefined
	logicExpr struct {
		and         bool
		left, right expr
	}
	notExpr     struct{ of expr }
	compareExpr struct {
		first expr
		ops   []string
		rest  []expr
	}
	binaryExpr struct {
		op          string
		left, right expr // left nil: a sign
	}
	attrExpr struct {
		of   expr
		name string
	}
	indexExpr struct{ of, index expr }
	sliceExpr struct {
		of    expr
		parts [3]expr // start, stop, step; nil where not given
	}
	argExprs struct {
		pos   []expr
		names []string
		named []expr
	}
	callExpr struct {
		fn   expr
		args argExprs
	}
	filterExpr struct {
		of   expr // nil: the text of the block it stands at
		name string
		args argExprs
	}
	testExpr struct {
		of     expr
		name   string
		args   argExprs
		negate bool
	}
)

func (e *constExpr) eval(*state, *scope) (any, error) { return e.value, nil }

// eval looks a name up in the scopes and then among the globals. An unknown one is undefined, which
// is an error only when it is used.
func (e nameExpr) eval(s *state, sc *scope) (any, error) {
	if err := s.charge(1); err != nil {
		return nil, err
	}
	if v, ok := sc.lookup(string(e)); ok {
		return v, nil
	}
	if v, ok := s.globals[string(e)]; ok {
		return v, nil
	}
	return undefined(string(e)), nil
}

func evalAll(s *state, sc *scope, list []expr) ([]any, error) {
	if err := s.charge(1 + len(list)); err != nil {
		return nil, err
	}
	out := make([]any, len(list))
	for i, e := range list {
		v, err := e.eval(s, sc)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (e *listExpr) eval(s *state, sc *scope) (any, error) {
	all, err := evalAll(s, sc, e.items)
	if err != nil {
		return nil, err
	}
	return shallow(newList(all, e.tuple))
}

func (e *mapExpr) eval(s *state, sc *scope) (any, error) {
	keys, err := evalAll(s, sc, e.keys)
	if err != nil {
		return nil, err
	}
	values, err := evalAll(s, sc, e.values)
	if err != nil {
		return nil, err
	}
	m := NewMap()
	for i, k := range keys {
		if !hashable(k) {
			return nil, fmt.Errorf("%s cannot be a key", quoteType(k))
		}
		m.Set(k, values[i])
	}
	return shallow(m)
}

// eval evaluates only the branch that is taken, so that the other may hold what would be an error.
func (e *condExpr) eval(s *state, sc *scope) (any, error) {
	c, err := e.cond.eval(s, sc)
	switch {
	case err != nil:
		return nil, err
	case truth(c):
		return e.then.eval(s, sc)
	case e.other != nil:
		return e.other.eval(s, sc)
	}
	return undefined("the inline if-expression without else"), nil
}

func (e *logicExpr) eval(s *state, sc *scope) (any, error) {
	left, err := e.left.eval(s, sc)
	if err != nil || truth(left) != e.and {
		return left, err
	}
	return e.right.eval(s, sc)
}

func (e *notExpr) eval(s *state, sc *scope) (any, error) {
	v, err := e.of.eval(s, sc)
	return !truth(v), err
}

// eval compares from left to right, as Python does for a < b < c, and stops at the first that is false.
func (e *compareExpr) eval(s *state, sc *scope) (any, error) {
	left, err := e.first.eval(s, sc)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		right, err := e.rest[i].eval(s, sc)
		if err != nil {
			return nil, err
		}
		ok, err := compareOp(s, op, left, right)
		if err != nil || !ok {
			return false, err
		}
		left = right
	}
	return true, nil
}

// compareOp compares two values. The work is charged before, because equal may walk through large lists.
func compareOp(s *state, op string, a, b any) (bool, error) {
	if err := s.charge(1 + weight(a) + weight(b)); err != nil {
		return false, err
	}
	switch op {
	case "==":
		return equal(a, b), nil
	case "!=":
		return !equal(a, b), nil
	case "in", "not in":
		in, err := contains(b, a)
		return in == (op == "in"), err
	}
	for _, v := range []any{a, b} {
		if u, ok := v.(Undefined); ok {
			return false, undefinedErr(u)
		}
	}
	c, err := compare(a, b)
	switch op {
	case "<":
		return c < 0, err
	case "<=":
		return c <= 0, err
	case ">":
		return c > 0, err
	}
	return c >= 0, err
}

// weight is the work of going through a value once.
func weight(v any) int {
	switch x := v.(type) {
	case string:
		return len(x) / textStep
	case *List:
		return len(x.elems)
	}
	return 0
}

// eval computes an arithmetic operation; one without a left side is a sign, which counts from 0.
func (e *binaryExpr) eval(s *state, sc *scope) (any, error) {
	var left any = int64(0)
	if e.left != nil {
		var err error
		if left, err = e.left.eval(s, sc); err != nil {
			return nil, err
		}
	}
	right, err := e.right.eval(s, sc)
	if err != nil {
		return nil, err
	}
	if e.op == "~" {
		a, err := s.text(left)
		if err != nil {
			return nil, err
		}
		b, err := s.text(right)
		if err != nil {
			return nil, err
		}
		return a + b, s.chargeText(len(a) + len(b))
	}
	return arith(s, e.op, left, right)
}

func (e *attrExpr) eval(s *state, sc *scope) (any, error) {
	v, err := e.of.eval(s, sc)
	if err != nil {
		return nil, err
	}
	return attribute(v, e.name)
}

func (e *indexExpr) eval(s *state, sc *scope) (any, error) {
	all, err := evalAll(s, sc, []expr{e.of, e.index})
	if err != nil {
		return nil, err
	}
	return subscript(all[0], all[1])
}

func (e *sliceExpr) eval(s *state, sc *scope) (any, error) {
	of, err := e.of.eval(s, sc)
	if err != nil {
		return nil, err
	}
	var parts [3]any
	for i, p := range e.parts {
		if p == nil {
			continue
		}
		if parts[i], err = p.eval(s, sc); err != nil {
			return nil, err
		}
	}
	if err := s.charge(1 + weight(of)); err != nil {
		return nil, err
	}
	return slice(of, parts)
}

func (a *argExprs) eval(s *state, sc *scope) (arguments, error) {
	pos, err := evalAll(s, sc, a.pos)
	if err != nil {
		return arguments{}, err
	}
	named, err := evalAll(s, sc, a.named)
	if err != nil {
		return arguments{}, err
	}
	out := arguments{pos, NewMap()}
	for i, n := range a.names {
		out.named.Set(n, named[i])
	}
	return out, nil
}

func (e *callExpr) eval(s *state, sc *scope) (any, error) {
	fn, err := e.fn.eval(s, sc)
	if err != nil {
		return nil, err
	}
	args, err := e.args.eval(s, sc)
	if err != nil {
		return nil, err
	}
	return callValue(s, fn, args)
}

func (e *filterExpr) eval(s *state, sc *scope) (any, error) {
	if e.of == nil {
		panic("jinja: the filter of a block is evaluated without the block's text")
	}
	v, err := e.of.eval(s, sc)
	if err != nil {
		return nil, err
	}
	return e.apply(s, sc, v)
}

// applyText applies the filters of a block, innermost first, to the block's text.
func (e *filterExpr) applyText(s *state, sc *scope, text any) (any, error) {
	if inner, ok := e.of.(*filterExpr); ok {
		v, err := inner.applyText(s, sc, text)
		if err != nil {
			return nil, err
		}
		text = v
	}
	return e.apply(s, sc, text)
}

// apply runs the filter on v, and charges for its input before and for its result after.
func (e *filterExpr) apply(s *state, sc *scope, v any) (any, error) {
	args, err := e.args.eval(s, sc)
	if err != nil {
		return nil, err
	}
	if err := s.charge(1 + weight(v)); err != nil {
		return nil, err
	}
	f := filters[e.name]
	if f == nil { // only here, as in Jinja: a branch that is not taken may name any
		return nil, fmt.Errorf("no filter is named '%s'", e.name)
	}
	out, err := f(s, v, args)
	if err != nil {
		return nil, fmt.Errorf("filter '%s': %w", e.name, err)
	}
	if text, ok := out.(string); ok {
		return out, s.chargeText(len(text))
	}
	if err := s.charge(weight(out)); err != nil {
		return nil, err
	}
	return shallow(out)
}

func (e *testExpr) eval(s *state, sc *scope) (any, error) {
	v, err := e.of.eval(s, sc)
	if err != nil {
		return nil, err
	}
	args, err := e.args.eval(s, sc)
	if err != nil {
		return nil, err
	}
	if err := s.charge(1 + weight(v)); err != nil {
		return nil, err
	}
	test := tests[e.name]
	if test == nil {
		return nil, fmt.Errorf("no test is named '%s'", e.name)
	}
	ok, err := test(s, v, args)
	if err != nil {
		return nil, fmt.Errorf("test '%s': %w", e.name, err)
	}
	return ok != e.negate, nil
}
