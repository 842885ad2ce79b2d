package jinja

import (
	"fmt"
	"slices"
)

// callStmt is {% call(names) macro(arguments) %}…{% endcall %}: a call of a macro that may call the block in
// its turn, as caller(…).
type callStmt struct {
	caller *macroStmt
	call   *callExpr
	line   int
}

func (n *callStmt) at() int { return n.line }

func (n *callStmt) exec(s *state, sc *scope) (flow, error) {
	fn, err := n.call.fn.eval(s, sc)
	if err != nil {
		return onward, err
	}
	args, err := n.call.args.eval(s, sc)
	if err != nil {
		return onward, err
	}
	named := NewMap()
	if args.named != nil {
		for _, k := range args.named.Keys() {
			v, _ := args.named.Get(k)
			named.Set(k, v)
		}
	}
	named.Set("caller", &function{"caller", func(s *state, args arguments) (any, error) {
		return n.caller.call(s, sc, args)
	}})
	v, err := callValue(s, fn, arguments{args.pos, named})
	if err != nil {
		return onward, err
	}
	return onward, s.write(str(v))
}

// callValue calls a function, or a recursive loop.
func callValue(s *state, fn any, args arguments) (any, error) {
	switch f := fn.(type) {
	case *function:
		v, err := f.call(s, args)
		if err != nil {
			return nil, err
		}
		return shallow(v)
	case *loop:
		if f.again == nil {
			return nil, fmt.Errorf("the loop must have the 'recursive' marker to be called recursively")
		}
		if len(args.pos) != 1 {
			return nil, fmt.Errorf("a recursive loop takes what to go over")
		}
		return f.again(s, args.pos[0])
	case Undefined:
		return nil, undefinedErr(f)
	}
	return nil, fmt.Errorf("%s is not callable", quoteType(fn))
}

// parseCall reads the block behind the word call.
func (p *parser) parseCall(line int) (stmt, error) {
	out := &callStmt{caller: &macroStmt{name: "caller", line: line}, line: line}
	if p.is(symbol, "(") {
		if err := p.parseParams(out.caller); err != nil {
			return nil, err
		}
	}
	e, err := p.parseExpr()
	if err != nil {
		return nil, err
	}
	call, ok := e.(*callExpr)
	if !ok {
		return nil, fmt.Errorf("a call block needs the call of a macro")
	}
	out.call = call
	if err := p.closed(); err != nil {
		return nil, err
	}
	return out, p.parseMacroBody(out.caller, "endcall")
}

// parseMacroBody reads a macro's body, and notes which of the names that a macro has beside its parameters it uses.
func (p *parser) parseMacroBody(m *macroStmt, end string) (err error) {
	loops, from := p.loops, p.at
	p.loops = 0
	m.body, err = p.block(end)
	p.loops = loops
	for _, t := range p.tokens[from:p.at] {
		if t.kind == name && slices.Contains(macroNames, t.text) && !slices.Contains(m.uses, t.text) &&
			!slices.Contains(m.params, t.text) {
			m.uses = append(m.uses, t.text)
		}
	}
	return err
}

// macroNames are the block that a macro was called with, and arguments beyond its parameters.
var macroNames = []string{"caller", "varargs", "kwargs"}

// extras sets macroNames in the scope of a call, and refuses arguments that nothing takes.
func (n *macroStmt) extras(sc *scope, args arguments) error {
	uses := func(name string) bool { return slices.Contains(n.uses, name) }
	rest := args.pos[min(len(args.pos), len(n.params)):]
	if len(rest) > 0 && !uses("varargs") {
		return fmt.Errorf("macro '%s' takes not more than %d argument(s); it was given %d", n.name,
			len(n.params), len(args.pos))
	}
	more, caller := NewMap(), any(Undefined{"No caller defined"})
	if args.named != nil {
		for _, k := range args.named.Keys() {
			v, _ := args.named.Get(k)
			switch {
			case slices.Contains(n.params, str(k)):
			case str(k) == "caller" && uses("caller"):
				caller = v
			case uses("kwargs"):
				more.Set(k, v)
			default:
				return fmt.Errorf("macro '%s' takes no keyword argument '%s'", n.name, k)
			}
		}
	}
	for name, v := range map[string]any{"caller": caller, "varargs": tuple(rest...), "kwargs": more} {
		if uses(name) {
			sc.set(name, v)
		}
	}
	return nil
}
