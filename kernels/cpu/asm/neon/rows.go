package main

import (
	"fmt"
	"strings"
)

// each writes a function that computes vectors from vectors: whole ones, of the length of its first argument; the wrapper in
// native_arm64.go sees to what is left. make may make constants, and gives what computes one vector: outputs are stored in the
// order of out.
func (e *emitter) each(name, params, doc string, in, out []string, make func(f function) func(x []vec) []vec) {
	f := e.begin(name, params, "", doc)
	first, _, _ := strings.Cut(params, " ")
	first, _, _ = strings.Cut(first, ",")
	e.length(f, first, "R8")
	at := map[string]string{}
	for i, p := range in {
		at[p] = fmt.Sprintf("R%d", i)
	}
	var to []string
	for _, p := range in {
		e.pointer(f, p, at[p])
	}
	for i, p := range out {
		r := []string{"R10", "R11", "R12", "R13"}[i]
		to = append(to, r)
		e.pointer(f, p, r)
	}
	body := make(f)
	e.line("LSR $2, R8")
	one := func() {
		e.next = 0
		var x []vec
		for _, p := range in {
			v := e.reg()
			x = append(x, v)
			e.line("VLD1.P 16(%s), [V%d.S4]", at[p], v)
		}
		for i, v := range body(x) {
			e.line("VST1.P [V%d.S4], 16(%s)", v, to[i])
		}
	}
	e.turns(one)
	e.end()
}

// turns runs what takes one vector R8 times, four at a turn.
func (e *emitter) turns(one func()) {
	main, rest, single, done := e.label(), e.label(), e.label(), e.label()
	e.line("LSR $2, R8, R9")
	e.line("CBZ R9, %s", rest)
	e.at(main)
	for range 4 {
		one()
	}
	e.line("SUB $1, R9")
	e.line("CBNZ R9, %s", main)
	e.at(rest)
	e.line("ANDS $3, R8")
	e.line("BEQ %s", done)
	e.at(single)
	one()
	e.line("SUB $1, R8")
	e.line("CBNZ R8, %s", single)
	e.at(done)
}

// two is d = a op b in a register of its own.
func (e *emitter) two(o op, a, b vec) vec {
	d := e.reg()
	e.is(o, d, a, b)
	return d
}

func (e *emitter) rows() {
	ab, y := []string{"a", "b"}, []string{"y"}
	for _, c := range []struct {
		name string
		o    op
	}{{"addN", fadd}, {"mulN", fmul}} {
		e.each(c.name, "y, a, b []float32", "is "+c.o.name+" of vectors.", ab, y, func(function) func([]vec) []vec {
			return func(x []vec) []vec { return []vec{e.two(c.o, x[0], x[1])} }
		})
	}
	for _, c := range []struct {
		name string
		o    op
	}{{"scaleN", fmul}, {"shiftN", fadd}} {
		e.each(c.name, "y, x []float32, s float32", "is "+c.o.name+" of a vector and a number.", []string{"x"}, y, func(f function) func([]vec) []vec {
			s := e.number(f, "s")
			return func(x []vec) []vec { return []vec{e.two(c.o, x[0], s)} }
		})
	}
	e.each("axpyN", "y, x []float32, s float32", "is y += s·x.", []string{"y", "x"}, y, func(f function) func([]vec) []vec {
		s := e.number(f, "s")
		return func(x []vec) []vec { e.is(fmla, x[0], x[1], s); return x[:1] }
	})
	e.each("mulAccN", "y, a, b []float32, s float32", "is y += a·b·s.", []string{"y", "a", "b"}, y, func(f function) func([]vec) []vec {
		s := e.number(f, "s")
		return func(x []vec) []vec { e.is(fmla, x[0], e.two(fmul, x[1], x[2]), s); return x[:1] }
	})
	e.norms()
	e.each("ropeN", "ya, yb, a, b, cos, sin []float32, sign float32", "turns pairs of columns.", []string{"a", "b", "cos", "sin"}, []string{"ya", "yb"},
		func(f function) func([]vec) []vec {
			sign := e.number(f, "sign")
			return func(x []vec) []vec {
				u, v, c, s := x[0], x[1], x[2], e.two(fmul, x[3], sign)
				p, q := e.two(fmul, u, c), e.two(fmul, v, c)
				e.is(fmls, p, v, s)
				e.is(fmla, q, u, s)
				return []vec{p, q}
			}
		})
	e.adamW()
}

func (e *emitter) norms() {
	y := []string{"y"}
	e.each("normN", "y, x, w []float32, r float32", "is y = x·r·w.", []string{"x", "w"}, y, func(f function) func([]vec) []vec {
		r := e.number(f, "r")
		return func(x []vec) []vec { return []vec{e.two(fmul, e.two(fmul, x[0], r), x[1])} }
	})
	e.each("normDXN", "y, dy, x, w []float32, r, k float32", "is y = r·(dy·w - x·k).", []string{"dy", "x", "w"}, y, func(f function) func([]vec) []vec {
		r, k := e.number(f, "r"), e.number(f, "k")
		return func(x []vec) []vec {
			d := e.two(fmul, x[0], x[2])
			e.is(fmls, d, x[1], k)
			return []vec{e.two(fmul, d, r)}
		}
	})
	e.each("layerN", "y, x, w, b []float32, mean, r float32", "is y = (x - mean)·r·w + b.", []string{"x", "w", "b"}, y, func(f function) func([]vec) []vec {
		mean, r := e.number(f, "mean"), e.number(f, "r")
		return func(x []vec) []vec {
			d := e.two(fmul, e.two(fsub, x[0], mean), r)
			e.is(fmla, x[2], d, x[1])
			return x[2:]
		}
	})
}

// adamW takes its constants from h: factor, keep, beta2, m1, m2, step, rootInv, eps.
func (e *emitter) adamW() {
	e.each("adamWN", "p, m, v, g []float32, factor, keep, beta2, m1, m2, step, rootInv, eps float32", "is a step of AdamW.", []string{"p", "m", "v", "g"}, []string{"p", "m", "v"},
		func(f function) func([]vec) []vec {
			var h []vec
			for _, n := range []string{"factor", "keep", "beta2", "m1", "m2", "step", "rootInv", "eps"} {
				h = append(h, e.number(f, n))
			}
			return func(x []vec) []vec {
				p, m, v, g := x[0], x[1], x[2], e.two(fmul, x[3], h[0])
				e.is(fmla, m, e.two(fsub, g, m), h[3])
				v2 := e.two(fmul, v, h[2])
				e.is(fmla, v2, e.two(fmul, h[4], g), g)
				root, down := e.reg(), e.reg()
				e.of(fsqrt, root, v2)
				e.copy(down, h[7])
				e.is(fmla, down, root, h[6])
				p2 := e.two(fmul, p, h[1])
				e.is(fsub, p2, p2, e.two(fdiv, e.two(fmul, m, h[5]), down))
				return []vec{p2, m, v2}
			}
		})
}
