package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// winograd writes the linear maps of F(4×4, 3×3) along one axis, see winoMaps, and those of F(2×2, 3×3).
func (e *emitter) winograd() {
	e.winograd2()
	e.linear("winoIn", 6, func(x []vec, put func(i int, v vec)) {
		y := e.times(4, x[0])
		e.fma(-5, x[2], y)
		put(0, e.plus(y, x[4]))
		y = e.times(4, x[1])
		e.fma(-5, x[3], y)
		put(5, e.plus(y, x[5]))
		s, d := e.copied(x[4]), e.copied(x[3])
		e.fma(-4, x[2], s)
		e.fma(-4, x[1], d)
		put(1, e.plus(s, d))
		put(2, e.minus(s, d))
		s, d = e.minus(x[4], x[2]), e.minus(x[3], x[1])
		d = e.times(2, d)
		put(3, e.plus(s, d))
		put(4, e.minus(s, d))
	})
	e.linear("winoOut", 6, func(x []vec, put func(i int, v vec)) {
		s, d, s2, d2 := e.halves4(x)
		put(0, e.plus(e.plus(s, s2), x[0]))
		y := e.copied(d)
		e.fma(2, d2, y)
		put(1, y)
		e.fma(4, s2, s)
		put(2, s)
		e.fma(8, d2, d)
		put(3, e.plus(d, x[5]))
	})
	e.linear("winoKernel", 3, func(x []vec, put func(i int, v vec)) {
		put(0, e.times(1.0/4, x[0]))
		s := e.times(-1.0/6, e.plus(x[0], x[2]))
		d := e.times(1.0/6, x[1])
		put(1, e.minus(s, d))
		put(2, e.plus(s, d))
		s, d = e.times(1.0/24, x[0]), e.times(1.0/12, x[1])
		e.fma(1.0/6, x[2], s)
		put(3, e.plus(s, d))
		put(4, e.minus(s, d))
		put(5, x[2])
	})
	e.linear("winoCotangent", 4, func(x []vec, put func(i int, v vec)) {
		put(0, x[0])
		put(5, x[3])
		s, d := e.plus(x[0], x[2]), e.plus(x[1], x[3])
		put(1, e.plus(s, d))
		put(2, e.minus(s, d))
		s, d = e.copied(x[0]), e.times(2, x[1])
		e.fma(4, x[2], s)
		e.fma(8, x[3], d)
		put(3, e.plus(s, d))
		put(4, e.minus(s, d))
	})
	e.linear("winoGradient", 6, func(x []vec, put func(i int, v vec)) {
		s, d, s2, d2 := e.halves4(x)
		y := e.times(1.0/4, x[0])
		e.fma(-1.0/6, s, y)
		e.fma(1.0/24, s2, y)
		put(0, y)
		y = e.times(-1.0/6, d)
		e.fma(1.0/12, d2, y)
		put(1, y)
		y = e.times(1.0/6, e.minus(s2, s))
		put(2, e.plus(y, x[5]))
	})
}

// winograd2 writes those of F(2×2, 3×3).
func (e *emitter) winograd2() {
	e.linear("winoIn2", 4, func(x []vec, put func(i int, v vec)) {
		put(0, e.minus(x[0], x[2]))
		put(1, e.plus(x[1], x[2]))
		put(2, e.minus(x[2], x[1]))
		put(3, e.minus(x[1], x[3]))
	})
	e.linear("winoOut2", 4, func(x []vec, put func(i int, v vec)) {
		put(0, e.plus(e.plus(x[0], x[1]), x[2]))
		put(1, e.minus(e.minus(x[1], x[2]), x[3]))
	})
	e.linear("winoKernel2", 3, func(x []vec, put func(i int, v vec)) {
		put(0, x[0])
		s, d := e.times(0.5, e.plus(x[0], x[2])), e.times(0.5, x[1])
		put(1, e.plus(s, d))
		put(2, e.minus(s, d))
		put(3, x[2])
	})
	e.linear("winoCotangent2", 2, func(x []vec, put func(i int, v vec)) {
		put(0, x[0])
		put(1, e.plus(x[0], x[1]))
		put(2, e.minus(x[0], x[1]))
		put(3, e.times(-1, x[1]))
	})
	e.linear("winoGradient2", 4, func(x []vec, put func(i int, v vec)) {
		s, d := e.times(0.5, e.plus(x[1], x[2])), e.times(0.5, e.minus(x[1], x[2]))
		put(0, e.plus(x[0], s))
		put(1, d)
		put(2, e.plus(s, x[3]))
	})
}

// halves4 are sums and differences of rows 1 and 2, and of 3 and 4.
func (e *emitter) halves4(x []vec) (s, d, s2, d2 vec) {
	return e.plus(x[1], x[2]), e.minus(x[1], x[2]), e.plus(x[3], x[4]), e.minus(x[3], x[4])
}

func (e *emitter) copied(x vec) vec {
	y := e.vec()
	VMOVUPS(x, y)
	return y
}

func (e *emitter) plus(a, b vec) vec {
	y := e.vec()
	VADDPS(a, b, y)
	return y
}

// minus is a - b.
func (e *emitter) minus(a, b vec) vec {
	y := e.vec()
	VSUBPS(b, a, y)
	return y
}

func (e *emitter) times(c float32, x vec) vec {
	y := e.vec()
	VMULPS(e.constant(c), x, y)
	return y
}

// fma is acc += c·x.
func (e *emitter) fma(c float32, x, acc vec) { VFMADD231PS(e.constant(c), x, acc) }

// linear writes one map. Constants are loaded before the loop, where the first use of each would stand in it.
func (e *emitter) linear(name string, in int, body func(x []vec, put func(i int, v vec))) {
	e.begin(name, "func(y []float32, ys int, x []float32, xs, n int)", "is a linear map of rows, see winoMaps.")
	for _, c := range []float32{-5, -4, -1, 0.5, 2, 4, 8, 1.0 / 4, 1.0 / 6, -1.0 / 6, 1.0 / 12, 1.0 / 24} {
		if e.wide {
			e.constant(c)
		}
	}
	y, x, n := base("y"), base("x"), count4("n")
	rows := func(p reg.Register, step string) func(i int) Mem {
		s, s3, s5 := bytesOf(step), GP64(), GP64()
		LEAQ(Mem{Base: s, Index: s, Scale: 2}, s3)
		LEAQ(Mem{Base: s, Index: s, Scale: 4}, s5)
		return func(i int) Mem {
			m := Mem{Base: p}
			switch i {
			case 1, 2, 4:
				m.Index, m.Scale = s, uint8(i)
			case 3:
				m.Index, m.Scale = s3, 1
			case 5:
				m.Index, m.Scale = s5, 1
			}
			return m
		}
	}
	ys, xs := rows(y, "ys"), rows(x, "xs")
	e.loop(n, []pointer{{y, false}, {x, false}}, 1, func(_ int, masked bool) {
		v := make([]vec, in)
		for i := range v {
			v[i] = e.load(xs(i), masked)
		}
		body(v, func(i int, r vec) { e.store(r, ys(i), masked) })
	})
	e.end()
}
