package main

import (
	"math"
	"slices"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// phiC are the coefficients of Φ(-a)·e^(a²/2) in t = 1/(1 + phiT·a) for a >= 0, the highest power first and
// none for 1: a fit of half of erfc(a/√2)·e^(a²/2) with a relative error of 1e-7.
var phiC = []float32{-0.06767154484987259, 0.23011320829391479, -0.1755657196044922, 0.20424160361289978,
	0.02361480332911015, 0.10061056166887283, 0.09147819876670837, 0.0931788831949234}

// phiHalfC are those of a fit that is good to 1e-4, for results of bfloat16, in t = 1/(1 + phiHalfT·a), and
// exp2HalfC those of 2^r on |r| <= 1/2, good to 3e-6.
var (
	phiHalfC = []float32{-0.08475962402470791, 0.14404823568553826, 0.12058059018163458, 0.16051054618064164,
		0.1595728016979752}
	exp2HalfC = []float32{0.009582771922500927, 0.05590635727223174, 0.24024099547576724, 0.6931242020028622, 1}
)

const phiHalfT = 0.4

const (
	phiT     = 0.33 * math.Sqrt2 / 2
	phiExp   = -math.Log2E / 2
	density  = 0.3989422804014327 // 1/√(2π)
	phiLarge = 1e10
)

// activations writes the primitives of activations with one operand.
func (e *emitter) activations() {
	e.gate()
	e.gelu("gelu", false)
	e.geluBwd("geluBwd", false)
	e.gateBwd()
	e.scaled("shift", "y = x + s", func(x, _, s vec) vec { VADDPS(s, x, x); return x })
}

// gate emits the sigmoid of x·(a + b·x²).
func (e *emitter) gate() {
	e.begin("gate", "func(y, x []float32, a, b float32)", "is y = 1/(1+exp(-(a·x + b·x³))).")
	k, a, b := e.sigmoidConstants(), e.float("a"), e.float("b")
	most := e.register(math.MaxFloat32) // of x², so that 0 times it is 0
	e.each(2, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		x, z := e.load(m[1], masked), e.vec()
		VMULPS(x, x, z)
		VMINPS(z, most, z)
		VFMADD213PS(a, b, z) // b·x² + a
		VMULPS(x, z, z)
		e.store(e.sigmoid(k, z), m[0], masked)
	})
	e.end()
}

// phi is Φ(x), the distribution function of the normal distribution, and exp(-x²/2). It takes the branch of
// a negative x by its sign bit, so that small results keep their digits.
func (e *emitter) phi(k expo, x vec) (phi, exp vec) {
	t, p, g, one := e.vec(), e.vec(), e.vec(), e.constant(1)
	if e.wide {
		VRANGEPS(Imm(0b1010), e.constant(phiLarge), x, t) // the lesser magnitude, without its sign
		VFMADD213PS(one, e.constant(phiT), t)
	} else {
		a := e.vec()
		VSUBPS(x, e.zero(), a)
		VMAXPS(x, a, a)                    // |x|
		VMINPS(e.constant(phiLarge), a, a) // whose inverse is not 0
		VMOVUPS(one, t)
		VFMADD231PS(e.constant(phiT), a, t)
	}
	e.inverse(t)
	VMULPS(x, x, g)
	VMULPS(e.constant(phiExp), g, g)
	e.exp2(k, g)
	e.polynomial(phiC, t, p)
	VMULPS(t, p, p)
	VMULPS(g, p, p) // Φ(-|x|)
	if e.wide {
		neg, pos := K(), K()
		VPMOVD2M(x, neg)
		KNOTW(neg, pos)
		VSUBPS(p, one, pos, p)
		return p, g
	}
	VMOVUPS(one, t)
	VSUBPS(p, t, t)
	VBLENDVPS(x, p, t, t)
	return t, g
}

// phiHalf is phi to a sixteenth of what rounding to bfloat16 costs, in two thirds of the instructions.
// k.high has the sign bit.
func (e *emitter) phiHalf(k expo, x vec) (phi, exp vec) {
	t, p, g, n := e.vec(), e.vec(), e.vec(), e.vec()
	VPANDND(x, k.high, t) // |x|
	VFMADD213PS(e.constant(1), e.constant(phiHalfT), t)
	VRCP14PS(t, t)
	VMULPS(x, x, g)
	VMULPS(e.constant(phiExp), g, g)
	VMAXPS(g, k.low, g)
	VRNDSCALEPS(Imm(0), g, n)
	VSUBPS(n, g, g)
	e.polynomial(exp2HalfC, g, p)
	VSCALEFPS(n, p, g)
	e.polynomial(phiHalfC, t, p)
	VMULPS(t, p, p)
	VMULPS(g, p, p) // Φ(-|x|)
	positive := K()
	VPTESTNMD(k.high, x, positive)
	VSUBPS(p, e.constant(1), positive, p)
	return p, g
}

// polynomial is y = Σ c·x^i, the highest power first.
func (e *emitter) polynomial(c []float32, x, y vec) {
	VMOVUPS(e.constant(c[1]), y)
	VFMADD231PS(e.constant(c[0]), x, y)
	for _, c := range c[2:] {
		VFMADD213PS(e.constant(c), x, y)
	}
}

// inverse replaces d, from 1 on, by 1/d: an estimate of 14 bits and one step of Newton's, a third of the
// time of a division.
func (e *emitter) inverse(d vec) {
	r := e.vec()
	if !e.wide { // its estimate has 12 bits only
		VMOVUPS(e.constant(1), r)
		VDIVPS(d, r, d)
		return
	}
	VRCP14PS(d, r)
	VFNMADD213PS(e.constant(2), r, d) // 2 - d·r
	VMULPS(r, d, d)
}

// gelu emits x·Φ(x), for float32 or for bfloat16 in and out.
func (e *emitter) gelu(name string, half bool) {
	e.begin(name, "func(y, x []"+elements(half)+")", "is y = x·Φ(x).")
	k, phiOf := e.geluConstants(half)
	e.halves(half, "y", "x")
	e.each(2, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		x := e.get(m[1], half, masked)
		phi, _ := phiOf(k, x)
		VMULPS(x, phi, phi)
		e.put(phi, m[0], half, masked)
	})
	e.end()
}

// geluBwd emits dy·(Φ(x) + x·φ(x)).
func (e *emitter) geluBwd(name string, half bool) {
	e.begin(name, "func(dx, dy, x []"+elements(half)+")", "is dx = dy·(Φ(x) + x·φ(x)).")
	k, phiOf := e.geluConstants(half)
	e.halves(half, "dx", "dy", "x")
	e.each(1, []string{"dx", "dy", "x"}, func(m []Mem, _ int, masked bool) {
		dy, x := e.get(m[1], half, masked), e.get(m[2], half, masked)
		phi, g := phiOf(k, x)
		VMULPS(x, g, g)
		VFMADD231PS(e.constant(density), g, phi)
		VMULPS(dy, phi, phi)
		e.put(phi, m[0], half, masked)
	})
	e.end()
}

// geluConstants puts what phi needs into registers, and returns the form of it.
func (e *emitter) geluConstants(half bool) (expo, func(expo, vec) (phi, exp vec)) {
	if half {
		for _, c := range slices.Concat([]float32{1, phiHalfT, phiExp, density}, phiHalfC, exp2HalfC) {
			e.constant(c)
		}
		sign := e.vec()
		VPTERNLOGD(U8(0xff), sign, sign, sign)
		VPSLLD(Imm(31), sign, sign)
		return expo{low: e.register(exp2Min), high: sign}, e.phiHalf
	}
	if e.wide {
		for _, c := range append([]float32{1, 2, phiT, phiExp, phiLarge, density}, phiC...) {
			e.constant(c)
		}
	}
	return e.exp2Constants(), e.phi
}

// gateFlat is beyond where s or 1-s is nothing, and its third power times that is nothing still.
const gateFlat = 1e4

// gateBwd emits the gradient of x·s, with s from gate.
func (e *emitter) gateBwd() {
	e.begin("gateBwd", "func(dx, dy, x, s []float32, a, b float32)",
		"is dx = dy·s·(1 + x·(1-s)·(a + 3b·x²)), the gradient of x·s with s of gate.")
	a, b := e.float("a"), e.float("b")
	VMULPS(broadcast(3), b, b)
	low, high := e.register(-gateFlat), e.register(gateFlat)
	e.each(1, []string{"dx", "dy", "x", "s"}, func(m []Mem, _ int, masked bool) {
		dy, x, s := e.load(m[1], masked), e.load(m[2], masked), e.load(m[3], masked)
		z, t := e.vec(), e.vec()
		VMAXPS(x, low, x)
		VMINPS(x, high, x)
		VMULPS(x, x, z)
		VFMADD213PS(a, b, z)
		VMULPS(x, z, z)
		VMOVUPS(broadcast(1), t)
		VSUBPS(s, t, t)
		VFMADD213PS(broadcast(1), z, t) // (1-s)·z + 1
		VMULPS(s, t, t)
		VMULPS(dy, t, t)
		e.store(t, m[0], masked)
	})
	e.end()
}
