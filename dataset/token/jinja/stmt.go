package jinja

import (
	"errors"
	"fmt"
)

// flow says how a body ended.
type flow int

const (
	onward flow = iota
	broken
	continued
)

// stmt is a node that writes output or sets names.
type stmt interface {
	exec(s *state, sc *scope) (flow, error)
	at() int // line in the template, 0 where nothing can fail
}

type (
	textStmt  string
	flowStmt  string // "break" or "continue"
	printStmt struct {
		value expr
		line  int
	}
	ifStmt struct {
		conds  []expr
		bodies [][]stmt
		other  []stmt
		line   int
	}
	forStmt struct {
		target      target
		over, cond  expr
		body, other []stmt
		recursive   bool
		line        int
	}
	setStmt struct {
		target target
		value  expr        // nil: the text of block
		filter *filterExpr // of the block's text, may be nil
		block  []stmt
		line   int
	}
	macroStmt struct {
		name     string
		params   []string
		defaults []expr
		body     []stmt
		uses     []string // of macroNames
		line     int
	}
	filterStmt struct {
		filter *filterExpr
		body   []stmt
		line   int
	}
	withStmt struct {
		sets []*setStmt
		body []stmt
		line int
	}
	generationStmt struct {
		body []stmt
		line int
	}
)

func (textStmt) at() int          { return 0 }
func (flowStmt) at() int          { return 0 }
func (n *printStmt) at() int      { return n.line }
func (n *ifStmt) at() int         { return n.line }
func (n *forStmt) at() int        { return n.line }
func (n *setStmt) at() int        { return n.line }
func (n *macroStmt) at() int      { return n.line }
func (n *filterStmt) at() int     { return n.line }
func (n *withStmt) at() int       { return n.line }
func (n *generationStmt) at() int { return n.line }

// run executes a body, and gives an error the line of the innermost statement.
func (s *state) run(body []stmt, sc *scope) (flow, error) {
	for _, n := range body {
		if err := s.charge(1); err != nil {
			return onward, &Error{Line: n.at(), Msg: err.Error()}
		}
		f, err := n.exec(s, sc)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) {
				e = &Error{Msg: err.Error()}
			}
			if e.Line == 0 {
				e.Line = n.at()
			}
			return onward, e
		}
		if f != onward {
			return f, nil
		}
	}
	return onward, nil
}

func (n textStmt) exec(s *state, _ *scope) (flow, error) { return onward, s.write(string(n)) }

func (n flowStmt) exec(*state, *scope) (flow, error) {
	if n == "break" {
		return broken, nil
	}
	return continued, nil
}

func (n *printStmt) exec(s *state, sc *scope) (flow, error) {
	v, err := n.value.eval(s, sc)
	if err != nil {
		return onward, err
	}
	return onward, s.write(str(v))
}

func (n *ifStmt) exec(s *state, sc *scope) (flow, error) {
	for i, c := range n.conds {
		v, err := c.eval(s, sc)
		if err != nil {
			return onward, err
		}
		if truth(v) {
			return s.run(n.bodies[i], sc)
		}
	}
	return s.run(n.other, sc)
}

// assign sets the names of a target.
func (t target) assign(sc *scope, v any) error {
	if t.attr != "" {
		of, _ := sc.lookup(t.names[0])
		ns, ok := of.(*namespace)
		if !ok {
			return fmt.Errorf("cannot assign attribute '%s' of %s: only a namespace has attributes to set",
				t.attr, quoteType(of))
		}
		ns.vars.Set(t.attr, v)
		return nil
	}
	if !t.many {
		sc.set(t.names[0], v)
		return nil
	}
	all, err := items(v)
	if err != nil {
		return err
	}
	if len(all) != len(t.names) {
		return fmt.Errorf("%d values for %d names", len(all), len(t.names))
	}
	for i, n := range t.names {
		sc.set(n, all[i])
	}
	return nil
}

func (n *forStmt) exec(s *state, sc *scope) (flow, error) {
	v, err := n.over.eval(s, sc)
	if err != nil {
		return onward, err
	}
	return n.each(s, sc, v, 0)
}

// each runs the loop over the items of a value. depth is how many calls of the loop it lies in.
func (n *forStmt) each(s *state, sc *scope, v any, depth int) (flow, error) {
	all, err := items(v)
	if err != nil {
		return onward, err
	}
	if all, err = n.filtered(s, sc, all); err != nil {
		return onward, err
	}
	if len(all) == 0 {
		return s.run(n.other, sc)
	}
	l := &loop{items: all, depth: depth}
	if n.recursive {
		l.again = func(s *state, v any) (any, error) {
			leave, err := s.enter()
			if err != nil {
				return nil, err
			}
			defer leave()
			return s.capture(func() error { _, err := n.each(s, sc, v, depth+1); return err })
		}
	}
	for l.index = range all {
		inner := sc.child()
		inner.set("loop", l)
		if err := n.target.assign(inner, all[l.index]); err != nil {
			return onward, err
		}
		f, err := s.run(n.body, inner)
		if err != nil || f == broken {
			return onward, err
		}
	}
	return onward, nil
}

// filtered keeps the items for which the loop's own condition holds.
func (n *forStmt) filtered(s *state, sc *scope, all []any) ([]any, error) {
	if n.cond == nil {
		return all, s.charge(len(all))
	}
	var out []any
	for _, item := range all {
		inner := sc.child()
		if err := n.target.assign(inner, item); err != nil {
			return nil, err
		}
		keep, err := n.cond.eval(s, inner)
		if err != nil {
			return nil, err
		}
		if truth(keep) {
			out = append(out, item)
		}
	}
	return out, nil
}

func (n *setStmt) exec(s *state, sc *scope) (flow, error) {
	if n.value != nil {
		v, err := n.value.eval(s, sc)
		if err != nil {
			return onward, err
		}
		return onward, n.target.assign(sc, v)
	}
	text, err := s.capture(func() error { _, err := s.run(n.block, sc.child()); return err })
	if err != nil {
		return onward, err
	}
	var v any = text
	if n.filter != nil {
		if v, err = n.filter.applyText(s, sc, text); err != nil {
			return onward, err
		}
	}
	return onward, n.target.assign(sc, v)
}

func (n *filterStmt) exec(s *state, sc *scope) (flow, error) {
	text, err := s.capture(func() error { _, err := s.run(n.body, sc.child()); return err })
	if err != nil {
		return onward, err
	}
	v, err := n.filter.applyText(s, sc, text)
	if err != nil {
		return onward, err
	}
	return onward, s.write(str(v))
}

func (n *withStmt) exec(s *state, sc *scope) (flow, error) {
	inner := sc.child()
	for _, set := range n.sets {
		v, err := set.value.eval(s, sc)
		if err != nil {
			return onward, err
		}
		if err := set.target.assign(inner, v); err != nil {
			return onward, err
		}
	}
	return s.run(n.body, inner)
}

func (n *generationStmt) exec(s *state, sc *scope) (flow, error) {
	if s.captures > 0 {
		return onward, fmt.Errorf("a generation block stands inside a macro or a captured block, so its " +
			"place in the text is unknown")
	}
	from := s.out.Len()
	f, err := s.run(n.body, sc.child())
	s.spans = append(s.spans, [2]int{from, s.out.Len()})
	return f, err
}

func (n *macroStmt) exec(s *state, sc *scope) (flow, error) {
	sc.set(n.name, &function{n.name, func(s *state, args arguments) (any, error) {
		return n.call(s, sc, args)
	}})
	return onward, nil
}

// call runs the macro's body in a scope of its own inside the one it was defined in, and returns what it wrote.
func (n *macroStmt) call(s *state, defined *scope, args arguments) (any, error) {
	leave, err := s.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	sc := defined.child()
	for i, p := range n.params {
		v, err := n.param(s, sc, i, args)
		if err != nil {
			return nil, err
		}
		sc.set(p, v)
	}
	if err := n.extras(sc, args); err != nil {
		return nil, err
	}
	return s.capture(func() error { _, err := s.run(n.body, sc); return err })
}

// param returns the value of parameter i: given by place, by name, its default, or undefined.
func (n *macroStmt) param(s *state, sc *scope, i int, args arguments) (any, error) {
	if i < len(args.pos) {
		return args.pos[i], nil
	}
	if args.named != nil {
		if v, ok := args.named.Get(n.params[i]); ok {
			return v, nil
		}
	}
	if n.defaults[i] != nil {
		return n.defaults[i].eval(s, sc)
	}
	return undefined(n.params[i]), nil
}

// hasGeneration reports whether a body holds a generation block.
func hasGeneration(body []stmt) bool {
	for _, n := range body {
		var inner [][]stmt
		switch x := n.(type) {
		case *generationStmt:
			return true
		case *ifStmt:
			inner = append(x.bodies[:len(x.bodies):len(x.bodies)], x.other)
		case *forStmt:
			inner = [][]stmt{x.body, x.other}
		case *setStmt:
			inner = [][]stmt{x.block}
		case *macroStmt:
			inner = [][]stmt{x.body}
		case *callStmt:
			inner = [][]stmt{x.caller.body}
		case *filterStmt:
			inner = [][]stmt{x.body}
		case *withStmt:
			inner = [][]stmt{x.body}
		}
		for _, b := range inner {
			if hasGeneration(b) {
				return true
			}
		}
	}
	return false
}
