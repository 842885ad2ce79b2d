package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectors writes the primitives without exponentials.
func (e *emitter) vectors() {
	e.dot("dot", false)
	e.dot3("dot3", false)
	e.max()
	e.sumSquares()
	e.pairwise("add", VADDPS, false)
	e.pairwise("mul", VMULPS, false)
	e.scaled("scale", "y = s·x", func(x, _, s vec) vec { VMULPS(s, x, x); return x })
	e.scaled("axpy", "y += s·x", func(x, y, s vec) vec { VFMADD231PS(s, x, y); return y })
	e.mulAcc("mulAcc", false)
	e.norm("norm", false)
	e.normDX("normDX", false)
	e.moments("", false)
	e.bothMoments()
	e.layer("layer", false)
}

// each runs body over the elements of the first of the named slices; body gets the operands' addresses.
func (e *emitter) each(unroll int, names []string, body func(m []Mem, u int, masked bool)) {
	n := count(names[0])
	var ptrs []pointer
	for _, s := range names {
		ptrs = append(ptrs, pointer{base(s), e.short[s]})
	}
	e.loop(n, ptrs, unroll, func(u int, masked bool) {
		m := make([]Mem, len(ptrs))
		for i, p := range ptrs {
			m[i] = p.at(e, u)
		}
		body(m, u, masked)
	})
}

// halves says whether the named slices have 16-bit elements.
func (e *emitter) halves(half bool, names ...string) {
	for _, n := range names {
		e.short[n] = half
	}
}

// sums are accumulators of unrolled reductions.
func (e *emitter) sums(n int) []vec {
	s := make([]vec, n)
	for i := range s {
		s[i] = e.zero()
	}
	return s
}

// total adds accumulators pairwise and returns the sum.
func (e *emitter) total(s []vec) { e.result(e.added(s)) }

// added is the sum of accumulators, in the lowest lane.
func (e *emitter) added(s []vec) reg.Register {
	for len(s) > 1 {
		for i := range len(s) / 2 {
			VADDPS(s[i+len(s)/2], s[i], s[i])
		}
		s = s[:len(s)/2]
	}
	return e.reduce(s[0], VADDPS)
}

// dot emits Σ a·b with four sums, as one would wait for its own result in each step.
func (e *emitter) dot(name string, half bool) {
	e.begin(name, "func(a, b []"+elements(half)+") float32", "is Σ a·b.")
	s := e.sums(4)
	e.halves(half, "a", "b")
	e.each(4, []string{"a", "b"}, func(m []Mem, u int, masked bool) {
		a, b := e.get(m[0], half, masked), e.get(m[1], half, masked)
		VFMADD231PS(a, b, s[u])
	})
	e.total(s)
}

// dot3 emits Σ a·b·c, for the norms' gradients.
func (e *emitter) dot3(name string, half bool) {
	e.begin(name, "func(a, c []"+elements(half)+", b []float32) float32", "is Σ a·b·c.")
	s := e.sums(4)
	e.halves(half, "a", "c")
	e.each(4, []string{"a", "b", "c"}, func(m []Mem, u int, masked bool) {
		a, b, c := e.get(m[0], half, masked), e.load(m[1], masked), e.get(m[2], half, masked)
		VMULPS(a, b, b)
		VFMADD231PS(b, c, s[u])
	})
	e.total(s)
}

// max keeps the accumulator where the other operand is a NaN.
func (e *emitter) max() {
	e.begin("max", "func(x []float32) float32", "is the largest number, -Inf for none.")
	s := make([]vec, 4)
	for i := range s {
		s[i] = e.register(float32(math.Inf(-1)))
	}
	e.largest(s, "x")
	e.result(e.reduce(s[0], VMAXPS))
}

// largest leaves the maxima of the lanes of a slice, and of the accumulators, in the first accumulator.
func (e *emitter) largest(s []vec, name string) {
	e.each(len(s), []string{name}, func(m []Mem, u int, masked bool) {
		x := e.load(m[0], masked)
		switch {
		case !masked:
			VMAXPS(s[u], x, s[u])
		case e.wide:
			VMAXPS(s[u], x, e.mask, s[u])
		default:
			l := e.register(float32(math.Inf(-1)))
			VBLENDVPS(e.mask, x, l, x)
			VMAXPS(s[u], x, s[u])
		}
	})
	for n := len(s) / 2; n > 0; n /= 2 {
		for i := range n {
			VMAXPS(s[i+n], s[i], s[i])
		}
	}
}

// sumSquares sums in float64.
func (e *emitter) sumSquares() {
	e.begin("sumSquares", "func(x []float32) float64", "is Σ x² in float64.")
	s := e.sums(4)
	e.each(2, []string{"x"}, func(m []Mem, u int, masked bool) {
		x := e.load(m[0], masked)
		lo, hi := e.vec(), e.vec()
		h := e.upper(x)
		if e.wide {
			VCVTPS2PD(x.AsY(), lo)
			VCVTPS2PD(h.AsY(), hi)
		} else {
			VCVTPS2PD(x.AsX(), lo)
			VCVTPS2PD(h.AsX(), hi)
		}
		VFMADD231PD(lo, lo, s[2*u])
		VFMADD231PD(hi, hi, s[2*u+1])
	})
	VADDPD(s[2], s[0], s[0])
	VADDPD(s[3], s[1], s[1])
	VADDPD(s[1], s[0], s[0])
	if e.wide {
		h := YMM()
		VEXTRACTF64X4(U8(1), s[0], h)
		VADDPD(h, s[0].AsY(), s[0].AsY())
	}
	x, t := s[0].AsX(), XMM()
	VEXTRACTF128(U8(1), s[0].AsY(), t)
	VADDPD(t, x, x)
	VUNPCKHPD(x, x, t)
	VADDSD(t, x, x)
	b, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	VMOVSD(x, b.Addr)
	e.end()
}

// upper is the upper half of a vector.
func (e *emitter) upper(v vec) vec {
	h := e.half()
	if e.wide {
		VEXTRACTF64X4(U8(1), v, h)
	} else {
		VEXTRACTF128(U8(1), v, h)
	}
	return h
}

// pairwise emits a function of two operands, element by element.
func (e *emitter) pairwise(name string, op func(...Op), half bool) {
	e.begin(name, "func(y, a, b []"+elements(half)+")", "is elementwise.")
	e.halves(half, "y", "a", "b")
	e.each(4, []string{"y", "a", "b"}, func(m []Mem, _ int, masked bool) {
		a, b := e.get(m[1], half, masked), e.get(m[2], half, masked)
		op(b, a, a)
		e.put(a, m[0], half, masked)
	})
	e.end()
}

// scaled writes a primitive of y, x and a factor.
func (e *emitter) scaled(name, doc string, op func(x, y, s vec) vec) {
	e.begin(name, "func(y, x []float32, s float32)", "is "+doc+".")
	s := e.float("s")
	e.each(4, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		x, y := e.load(m[1], masked), vec(nil)
		if name == "axpy" {
			y = e.load(m[0], masked)
		}
		e.store(op(x, y, s), m[0], masked)
	})
	e.end()
}

// mulAcc adds a product that is rounded: subnormal numbers, though they count as zero, slow fused
// multiply-adds of Zen 4 down.
func (e *emitter) mulAcc(name string, half bool) {
	e.begin(name, "func(y []float32, a, b []"+elements(half)+", s float32)", "is y += a·b·s.")
	s := e.float("s")
	e.halves(half, "a", "b")
	e.each(2, []string{"y", "a", "b"}, func(m []Mem, _ int, masked bool) {
		y, a, b := e.load(m[0], masked), e.get(m[1], half, masked), e.get(m[2], half, masked)
		VMULPS(a, b, b)
		VMULPS(s, b, b)
		VADDPS(b, y, y)
		e.store(y, m[0], masked)
	})
	e.end()
}

// norm emits x·r·w.
func (e *emitter) norm(name string, half bool) {
	e.begin(name, "func(y, x []"+elements(half)+", w []float32, r float32)", "is y = x·r·w.")
	r := e.float("r")
	e.halves(half, "y", "x")
	e.each(2, []string{"y", "x", "w"}, func(m []Mem, _ int, masked bool) {
		x, w := e.get(m[1], half, masked), e.load(m[2], masked)
		VMULPS(r, x, x)
		VMULPS(w, x, x)
		e.put(x, m[0], half, masked)
	})
	e.end()
}

// normDX emits r·(dy·w - x·k).
func (e *emitter) normDX(name string, half bool) {
	e.begin(name, "func(y, dy, x []"+elements(half)+", w []float32, r, k float32)", "is y = r·(dy·w - x·k).")
	r, k := e.float("r"), e.float("k")
	e.halves(half, "y", "dy", "x")
	e.each(2, []string{"y", "dy", "x", "w"}, func(m []Mem, _ int, masked bool) {
		dy, x, w := e.get(m[1], half, masked), e.get(m[2], half, masked), e.load(m[3], masked)
		VMULPS(k, x, x)
		VFMSUB231PS(dy, w, x) // dy·w - x·k
		VMULPS(r, x, x)
		e.put(x, m[0], half, masked)
	})
	e.end()
}

// moments writes sum and centred, the two sums of a layer norm: its variance is summed after the mean is
// known, since the difference of two large sums would lose its digits.
func (e *emitter) moments(suffix string, half bool) {
	e.begin("sum"+suffix, "func(x []"+elements(half)+") float32", "is Σ x.")
	s := e.sums(4)
	e.halves(half, "x")
	e.each(4, []string{"x"}, func(m []Mem, u int, masked bool) {
		VADDPS(e.get(m[0], half, masked), s[u], s[u])
	})
	e.total(s)
	e.begin("centred"+suffix, "func(x []"+elements(half)+", mean float32) float32", "is Σ (x - mean)².")
	mean := e.float("mean")
	s = e.sums(4)
	e.halves(half, "x")
	e.each(4, []string{"x"}, func(m []Mem, u int, masked bool) {
		x := e.get(m[0], half, masked)
		VSUBPS(mean, x, x)
		e.keep(x, masked)
		VFMADD231PS(x, x, s[u])
	})
	e.total(s)
}

// bothMoments writes both sums in one call, which for short rows takes as long as a sum.
func (e *emitter) bothMoments() {
	e.begin("moments", "func(x []float32, n float32) (sum, squares float32)", "is Σ x and Σ (x - Σ x/n)².")
	n, s := e.float("n"), e.sums(4)
	e.each(4, []string{"x"}, func(m []Mem, u int, masked bool) { VADDPS(e.load(m[0], masked), s[u], s[u]) })
	x := e.added(s)
	VMOVSS(x, returned(0))
	VDIVSS(n.AsX(), x, x)
	mean := e.vec()
	VBROADCASTSS(x, mean)
	s = e.sums(4)
	e.each(4, []string{"x"}, func(m []Mem, u int, masked bool) {
		x := e.load(m[0], masked)
		VSUBPS(mean, x, x)
		e.keep(x, masked)
		VFMADD231PS(x, x, s[u])
	})
	VMOVSS(e.added(s), returned(1))
	e.end()
}

// returned is where a result goes.
func returned(i int) Mem {
	b, err := ReturnIndex(i).Resolve()
	if err != nil {
		panic(err)
	}
	return b.Addr
}

// layer emits (x - mean)·r·w + b.
func (e *emitter) layer(name string, half bool) {
	e.begin(name, "func(y, x []"+elements(half)+", w, b []float32, mean, r float32)", "is y = (x - mean)·r·w + b.")
	mean, r := e.float("mean"), e.float("r")
	e.halves(half, "y", "x")
	e.each(2, []string{"y", "x", "w", "b"}, func(m []Mem, _ int, masked bool) {
		x, w, b := e.get(m[1], half, masked), e.load(m[2], masked), e.load(m[3], masked)
		VSUBPS(mean, x, x)
		VMULPS(r, x, x)
		VFMADD213PS(b, w, x)
		e.put(x, m[0], half, masked)
	})
	e.end()
}
