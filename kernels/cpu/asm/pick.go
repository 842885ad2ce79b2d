package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Predicates of comparisons.
const (
	unordered  = 3    // one is a NaN
	ordered    = 7    // none is
	notAtMost  = 6    // greater, or one is a NaN
	moreOrLess = 0x1e // greater, and none is a NaN
)

// picks writes the primitives that choose between numbers. None of them rounds, and subnormal numbers are as they are.
func (e *emitter) picks() {
	e.relu()
	e.reluBwd()
	e.larger("larger", false)
	e.larger("largerAt", true)
}

// where compares b to a, "b predicate a", to a mask: a register of bits with AVX-512, else of lanes.
func (e *emitter) where(predicate uint64, a, b Op) reg.Register {
	if e.wide {
		k := K()
		VCMPPS(Imm(predicate), a, b, k)
		return k
	}
	m := YMM()
	VCMPPS(Imm(predicate), a, b, m)
	return m
}

// pick sets the lanes of v that a mask has to those of x.
func (e *emitter) pick(mask reg.Register, x, v vec) {
	if e.wide {
		VMOVAPS(x, mask, v)
	} else {
		VBLENDVPS(mask, x, v, v)
	}
}

// relu adds 0, which makes one of a negative zero.
func (e *emitter) relu() {
	e.beginMove("relu", "func(y, x []float32)", "is y = max(x, 0), a NaN for one.")
	zero := e.zero()
	e.each(4, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		x := e.load(m[1], masked)
		VMAXPS(x, zero, x)
		VADDPS(zero, x, x)
		e.store(x, m[0], masked)
	})
	e.end()
}

// reluBwd chooses by comparing, so that a NaN of x passes dy on.
func (e *emitter) reluBwd() {
	e.beginMove("reluBwd", "func(dx, dy, x []float32)", "is dx = dy where x is above 0 or a NaN, and 0 elsewhere.")
	zero := e.zero()
	e.each(4, []string{"dx", "dy", "x"}, func(m []Mem, _ int, masked bool) {
		dy, x := e.load(m[1], masked), e.load(m[2], masked)
		above, y := e.where(notAtMost, zero, x), e.vec()
		e.clear(y)
		e.pick(above, dy, y)
		e.store(y, m[0], masked)
	})
	e.end()
}

// larger takes the bits that both orders of a maximum have: it gives its second operand where numbers are
// equal, which zeros of both signs are. Where one is a NaN it is their sum.
func (e *emitter) larger(name string, places bool) {
	slices := []string{"best", "v"}
	if places {
		slices = append(slices, "at")
		e.beginMove(name, "func(best, v []float32, at []int32, p int32)", "is larger, with at = p where v is taken.")
	} else {
		e.beginMove(name, "func(best, v []float32)", "is best = max(best, v), a NaN for one.")
	}
	var p vec
	if places {
		p = e.float("p") // as bits
	}
	e.each(2, slices, func(m []Mem, _ int, masked bool) {
		best, v := e.load(m[0], masked), e.load(m[1], masked)
		if places {
			at := e.load(m[2], masked)
			e.pick(e.where(moreOrLess, best, v), p, at)
			e.pick(e.firstNaN(best, v), p, at)
			e.store(at, m[2], masked)
		}
		none, sum, back := e.where(unordered, best, v), e.vec(), e.vec()
		VADDPS(v, best, sum)
		VMAXPS(best, v, back)
		VMAXPS(v, best, best)
		VANDPS(back, best, best)
		e.pick(none, sum, best)
		e.store(best, m[0], masked)
	})
	e.end()
}

// firstNaN is where v is a NaN and best is none.
func (e *emitter) firstNaN(best, v vec) reg.Register {
	if e.wide {
		k := K()
		VCMPPS(Imm(unordered), v, v, e.where(ordered, best, best), k)
		return k
	}
	m := e.where(unordered, v, v)
	VANDPS(e.where(ordered, best, best), m, m)
	return m
}
