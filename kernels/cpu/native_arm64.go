package cpu

import "math"

// native is NEON alone, which each arm64 has. What it computes a vector at a time is one number's value wherever that lies:
// the numbers behind the last whole vector are computed as a vector too.
func native() []*isa { return []*isa{&neon} }

// pause gives a busy wait a moment.
func pause() {
	for range 16 {
	}
}

var neon = isa{
	name: "neon", mr: 6, nr: 16, lanes: 4,
	tile: tileN, tileRows: tileRowsN, transpose: neonTranspose, spread: goSpread,
	rowTimes: rowTimesN, peak: peakN,
	dot: neonDot, dot3: neonDot3, sum: neonSum, centred: neonCentred, moments: neonMoments, max: neonMax,
	axpy: func(y, x []float32, s float32) {
		n := whole(y)
		axpyN(y[:n], x, s)
		goAxpy(y[n:], x[n:], s)
	},
	mulAcc: func(y, a, b []float32, s float32) {
		n := whole(y)
		mulAccN(y[:n], a, b, s)
		goMulAcc(y[n:], a[n:], b[n:], s)
	},
	add: func(y, a, b []float32) {
		n := whole(y)
		addN(y[:n], a, b)
		goAdd(y[n:], a[n:], b[n:])
	},
	mul: func(y, a, b []float32) {
		n := whole(y)
		mulN(y[:n], a, b)
		goMul(y[n:], a[n:], b[n:])
	},
	scale: func(y, x []float32, s float32) {
		n := whole(y)
		scaleN(y[:n], x, s)
		goScale(y[n:], x[n:], s)
	},
	shift: func(y, x []float32, s float32) {
		n := whole(y)
		shiftN(y[:n], x, s)
		goShift(y[n:], x[n:], s)
	},
	norm: func(y, x, w []float32, r float32) {
		map2(y, x, w, func(y, x, w []float32) { normN(y, x, w, r) })
	},
	normDX: func(y, dy, x, w []float32, r, k float32) {
		map3(y, dy, x, w, func(y, dy, x, w []float32) { normDXN(y, dy, x, w, r, k) })
	},
	layer: func(y, x, w, b []float32, mean, r float32) {
		map3(y, x, w, b, func(y, x, w, b []float32) { layerN(y, x, w, b, mean, r) })
	},
	gate: func(y, x []float32, a, b float32) {
		map1(y, x, func(y, x []float32) { gateN(y, x, a, b) })
	},
	gateBwd: func(dx, dy, x, s []float32, a, b float32) {
		map3(dx, dy, x, s, func(dx, dy, x, s []float32) { gateBwdN(dx, dy, x, s, a, b) })
	},
	gelu:    func(y, x []float32) { map1(y, x, geluN) },
	geluBwd: func(dx, dy, x []float32) { map2(dx, dy, x, geluBwdN) },
	swiglu:  func(y, g, u []float32) { map2(y, g, u, swigluN) }, swigluBwd: neonSwiGLUBwd,
	exp: neonExp, soft: neonSoft, softPast: neonSoft, softGrad: neonSoftGrad,
	rope: neonRope, ropePairs: goRopePairs,
	nibbles: goNibbles,
	fromBF16: func(y []float32, x []uint16) {
		n := whole(y)
		fromBF16N(y[:n], x)
		goFromBF16(y[n:], x[n:])
	},
	toBF16: func(y []uint16, x []float32) {
		n := len(y) &^ 3
		toBF16N(y[:n], x)
		goToBF16(y[n:], x[n:])
	},
	fromF16: goFromF16, toF16: goToF16,
	adamW: neonAdamW, sgd: goSGD, sumSquares: goSumSquares,
	relu: goReLU, reluBwd: goReLUBwd, larger: goLarger, largerAt: goLargerAt,
	absMax: goAbsMax, absMaxes: goAbsMaxes, roundBits: goRoundBits, roundEach: goRoundEach,
	chances: goChances, butterfly: goButterfly, runMaxes: goRunMaxes, runs: goRuns,
	addRuns: goAddRuns,
}

// whole is the length of the whole vectors of x.
func whole(x []float32) int { return len(x) &^ 3 }

// quad is a vector for the numbers behind the last whole one.
type quad [4]float32

// behind are the numbers of x from n on, in a vector.
func behind(x []float32, n, to int) (q quad) {
	copy(q[:], x[n:to])
	return q
}

// map1, map2 and map3 run a function of whole vectors over what has any length.
func map1(y, x []float32, f func(y, x []float32)) {
	n := whole(y)
	f(y[:n], x)
	if n < len(y) {
		a := behind(x, n, len(y))
		f(a[:], a[:])
		copy(y[n:], a[:])
	}
}

func map2(y, x, w []float32, f func(y, x, w []float32)) {
	n := whole(y)
	f(y[:n], x, w)
	if n < len(y) {
		a, b := behind(x, n, len(y)), behind(w, n, len(y))
		f(a[:], a[:], b[:])
		copy(y[n:], a[:])
	}
}

func map3(y, x, w, v []float32, f func(y, x, w, v []float32)) {
	n := whole(y)
	f(y[:n], x, w, v)
	if n < len(y) {
		a, b, c := behind(x, n, len(y)), behind(w, n, len(y)), behind(v, n, len(y))
		f(a[:], a[:], b[:], c[:])
		copy(y[n:], a[:])
	}
}

func neonDot(a, b []float32) float32 {
	n := whole(a)
	s := dotN(a[:n], b)
	for i := n; i < len(a); i++ {
		s += a[i] * b[i]
	}
	return s
}

func neonDot3(a, c, b []float32) float32 {
	n := whole(a)
	s := dot3N(a[:n], c, b)
	return s + goDot3(a[n:], c[n:], b[n:])
}

func neonSum(x []float32) float32 { n := whole(x); return sumN(x[:n]) + goSum(x[n:]) }

func neonCentred(x []float32, mean float32) float32 {
	n := whole(x)
	return centredN(x[:n], mean) + goCentred(x[n:], mean)
}

func neonMoments(x []float32, n float32) (sum, squares float32) {
	sum = neonSum(x)
	return sum, neonCentred(x, sum/n)
}

func neonMax(x []float32) float32 {
	n := whole(x)
	return max(maxN(x[:n]), goMax(x[n:]))
}

func neonSwiGLUBwd(dg, du, dy, g, u []float32) {
	n := whole(dy)
	swigluBwdN(dg[:n], du, dy, g, u)
	if n < len(dy) {
		d, x, v := behind(dy, n, len(dy)), behind(g, n, len(dy)), behind(u, n, len(dy))
		swigluBwdN(x[:], v[:], d[:], x[:], v[:])
		copy(dg[n:len(dy)], x[:])
		copy(du[n:len(dy)], v[:])
	}
}

// total sums the numbers of whole vectors up, and those behind them.
func total(part, rest *quad, n int) float32 {
	s := (part[0] + part[2]) + (part[1] + part[3])
	for _, v := range rest[:n] {
		s += v
	}
	return s
}

func neonExp(y, x []float32, scale, shift, c float32) float32 {
	var part, none, rest quad
	n := whole(y)
	expN(y[:n], x, part[:], scale, shift, c)
	if n < len(y) {
		rest = behind(x, n, len(y))
		expN(rest[:], rest[:], none[:], scale, shift, c)
		copy(y[n:], rest[:])
	}
	return total(&part, &rest, len(y)-n)
}

func neonSoft(y, x []float32, scale, top float32) (most, sum float32) {
	most = max(top, neonMax(x)*scale)
	shift := max(most, -math.MaxFloat32)
	var part, none, rest quad
	n := whole(x)
	softN(y[:n], x, part[:], scale, shift)
	if n < len(x) {
		rest = behind(x, n, len(x))
		softN(rest[:], rest[:], none[:], scale, shift)
		copy(y[n:len(x)], rest[:])
	}
	return most, total(&part, &rest, len(x)-n)
}

func neonSoftGrad(p, ds, s, dp []float32, scale, lse, delta, factor float32) {
	n := whole(s)
	softGradN(p[:n], ds, s, dp, scale, lse, delta, factor)
	if n < len(s) {
		a, b := behind(s, n, len(s)), behind(dp, n, len(s))
		softGradN(a[:], b[:], a[:], b[:], scale, lse, delta, factor)
		copy(p[n:len(s)], a[:])
		copy(ds[n:len(s)], b[:])
	}
}

func neonRope(y, x, cos, sin []float32, heads, width int, sign float32) {
	r := len(cos)
	if r&3 != 0 {
		goRope(y, x, cos, sin, heads, width, sign)
		return
	}
	for h := range heads {
		a, b := x[h*width:][:r], x[h*width+r:][:r]
		ropeN(y[h*width:][:r], y[h*width+r:][:r], a, b, cos, sin, sign)
	}
}

func neonTranspose(dst []float32, step int, src []float32, ld, blocks int) {
	switch {
	case step >= 16:
		transpose16N(dst, step, src, ld, blocks)
	case step == 6:
		transpose6N(dst, step, src, ld, blocks)
	default:
		goTranspose(dst, step, src, ld, blocks)
	}
}

func neonAdamW(p, m, v, g []float32, h *adamConst) {
	n := whole(p)
	adamWN(p[:n], m, v, g, h.factor, h.keep, h.beta2, h.m1, h.m2, h.step, h.rootInv, h.eps)
	if n < len(p) {
		a, b, c, d := behind(p, n, len(p)), behind(m, n, len(p)), behind(v, n, len(p)), behind(g, n, len(p))
		adamWN(a[:], b[:], c[:], d[:], h.factor, h.keep, h.beta2, h.m1, h.m2, h.step, h.rootInv, h.eps)
		copy(p[n:], a[:])
		copy(m[n:len(p)], b[:])
		copy(v[n:len(p)], c[:])
	}
}
