package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// exp2C are the coefficients of 2^r on |r| <= 1/2, the highest power first (minimax with 2^0 = 1, relative
// error 9e-8).
var exp2C = []float32{1.326472731307149e-3, 9.671512991189957e-3, 5.550733581185341e-2,
	2.4022242426872253e-1, 6.931470036506653e-1, 1}

// exp2Min is where 2^t is 0; exp2Max keeps the exponents of AVX2's two factors in range. Powers up to about 1, as those of
// a running softmax, have one factor, which is 0 from 2^softMin on: smaller numbers are none anyway.
const exp2Min, exp2Max, softMin, softMax = -160, 160, -127, 127

// exp2Constants puts what exp2 needs into registers.
func (e *emitter) exp2Constants() expo {
	if e.wide {
		for _, c := range exp2C[1:] {
			e.constant(c)
		}
	}
	return expo{low: e.register(exp2Min), high: e.register(exp2Max)}
}

// softConstants puts what exp2 needs for powers up to about 1 into registers.
func (e *emitter) softConstants() expo {
	if e.wide {
		return e.exp2Constants()
	}
	return expo{low: e.register(softMin), high: e.register(softMax), small: true}
}

// exp2 replaces t by 2^t: two thirds of the instructions of exp, for arguments that are multiplied with a
// factor anyway. A NaN stays one, as in exp.
func (e *emitter) exp2(k expo, t vec) {
	n := e.vec()
	VMAXPS(t, k.low, t)
	if !e.wide {
		VMINPS(t, k.high, t)
	}
	e.roundWhole(t, n)
	VSUBPS(n, t, t)
	e.power(k, n, t, t)
}

// roundWhole sets n to the whole number next to t.
func (e *emitter) roundWhole(t, n vec) {
	if e.wide {
		VRNDSCALEPS(Imm(0), t, n)
	} else {
		VROUNDPS(Imm(0), t, n)
	}
}

// power is y = 2^(n+r) for a whole number n and |r| <= 1/2; n and r are used up.
func (e *emitter) power(k expo, n, r, y vec) {
	p := e.vec()
	VMOVUPS(e.constant(exp2C[1]), p)
	VFMADD231PS(broadcast(exp2C[0]), r, p)
	for _, c := range exp2C[2:] {
		VFMADD213PS(e.constant(c), r, p)
	}
	if e.wide {
		VSCALEFPS(n, p, y)
		return
	}
	if k.small {
		VCVTPS2DQ(n, n)
		VPSLLD(Imm(23), n, n)
		VPADDD(broadcast(1), n, n)
		VMULPS(n, p, y)
		return
	}
	e.scale2(n, p, y)
}

// softmaxes writes the primitives of attention's rows.
func (e *emitter) softmaxes() {
	e.soft("soft", false, false)
	e.softGrad("softGrad", false)
	if e.wide {
		e.soft("softPast", false, true)
		e.soft("softHalf", true, false)
		e.soft("softHalfPast", true, true)
		e.softGrad("softGradHalf", true)
	}
}

// soft passes over x twice: for the maximum, and for the exponentials; past is for whether those go past the
// caches, for which y must be aligned to a vector.
func (e *emitter) soft(name string, half, past bool) {
	e.begin(name, "func(y []"+elements(half)+", x []float32, scale, top float32) (most, sum float32)",
		"is y = 2^(x·scale - most) with most = max(top, x·scale), and Σ y.")
	scale, top := e.float("scale"), e.float("top")
	m := make([]vec, 4)
	for i := range m {
		m[i] = e.register(float32(math.Inf(-1)))
	}
	e.largest(m, "x")
	x := e.reduce(m[0], VMAXPS)
	VMULSS(scale.AsX(), x, x)
	VMAXSS(x, top.AsX(), x)
	VMOVSS(x, returned(0))
	// Finite, so that the exponentials of -Inf are 0 where there is nothing else.
	VMAXSS(broadcast(-math.MaxFloat32), x, x)
	shift := e.vec()
	VBROADCASTSS(x, shift)
	first := e.roundedFirst(x, scale)
	k, s := e.softConstants(), e.sums(2)
	e.halves(half, "y")
	e.each(2, []string{"x", "y"}, func(m []Mem, u int, masked bool) {
		t := e.load(m[0], masked)
		VMULPS(first, t, t)
		VFMSUB213PS(shift, scale, t)
		e.exp2(k, t)
		e.keep(t, masked)
		VADDPS(t, s[u], s[u])
		if past && !masked {
			e.putPast(t, m[1], half)
		} else {
			e.put(t, m[1], half, masked)
		}
	})
	if past {
		SFENCE()
	}
	VADDPS(s[1], s[0], s[0])
	VMOVSS(e.reduce(s[0], VADDPS), returned(1))
	e.end()
}

// softExact is up to where the product of a score and the scale is taken exactly: there the greatest differs from its
// rounded value, which is the shift, by 1/16 at most. Beyond, by so much that its power may be 0 or infinite.
const softExact = 1 << 20

// roundedFirst gives what elements are multiplied with before they are with scale: 1; but where the scalar most is too
// large for exact products it is the scale, and scale becomes 1, so that products are rounded as most is.
func (e *emitter) roundedFirst(most reg.Register, scale vec) vec {
	first, size, exact := e.register(1), XMM(), e.label()
	VXORPS(size, size, size)
	VSUBSS(most, size, size)
	VMAXSS(most, size, size)
	VUCOMISS(broadcast(softExact), size)
	JCS(LabelRef(exact))
	VMOVUPS(scale, first)
	VMOVUPS(broadcast(1), scale)
	Label(exact)
	return first
}

// softGrad turns scores into probabilities, and their gradient into that of the scores.
func (e *emitter) softGrad(name string, half bool) {
	e.begin(name, "func(p, ds []"+elements(half)+", s, dp []float32, scale, lse, delta, factor float32)",
		"is p = 2^(s·scale - lse) and ds = (dp - delta)·p·factor.")
	scale, lse, delta, factor := e.float("scale"), e.float("lse"), e.float("delta"), e.float("factor")
	k := e.exp2Constants()
	k.high = e.register(0) // lse is rounded: what is above 0 is by that alone, and a lot where scores are large
	e.halves(half, "p", "ds")
	e.each(2, []string{"s", "dp", "p", "ds"}, func(m []Mem, _ int, masked bool) {
		t, d := e.load(m[0], masked), e.load(m[1], masked)
		VFMSUB213PS(lse, scale, t)
		if e.wide {
			VMINPS(t, k.high, t)
		}
		e.exp2(k, t)
		VSUBPS(delta, d, d)
		VMULPS(factor, d, d)
		VMULPS(t, d, d)
		e.put(t, m[2], half, masked)
		e.put(d, m[3], half, masked)
	})
	e.end()
}
