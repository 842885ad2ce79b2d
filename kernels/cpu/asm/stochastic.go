package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// chance emits y = q(x·f)·back with q rounding to numbers of e2m1 by chance, as kernels.Number.StochasticRound by
// kernels.NoiseAt.
func (e *emitter) chance() {
	e.beginMove("chances", "func(y, x, f, back []float32, seed int)",
		"is y = q(x·f)·back, with q to numbers of e2m1 by chance.")
	counting := GLOBL("counting"+e.suffix, RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(uint32(i)))
	}
	b, err := Param("seed").Resolve()
	if err != nil {
		panic(err)
	}
	seed, place := e.vec(), e.vec()
	VPBROADCASTD(b.Addr, seed)
	VMOVUPS(counting, place)
	e.each(1, []string{"y", "x", "f", "back"}, func(m []Mem, _ int, masked bool) {
		x, f, back := e.load(m[1], masked), e.load(m[2], masked), e.load(m[3], masked)
		VMULPS(f, x, x)
		x = e.byChance(x, seed, place)
		VMULPS(back, x, x)
		e.store(x, m[0], masked)
	})
	e.end()
}

// shifted is x ^ x>>n, of integers.
func (e *emitter) shifted(x vec, n int) {
	t := e.vec()
	VPSRLD(U8(uint8(n)), x, t)
	e.xor(t, x)
}

func (e *emitter) xor(y Op, x vec) {
	if e.wide {
		VPXORD(y, x, x)
	} else {
		VPXOR(y, x, x)
	}
}

// byChance rounds x by the noise of places, and moves these on by a vector.
func (e *emitter) byChance(x, seed, place vec) vec {
	a, h, t, small := e.vec(), e.vec(), e.vec(), e.vec()
	VPMULLD(integer(0x9e3779b1), place, h)
	e.xor(seed, h)
	e.shifted(h, 16)
	VPMULLD(integer(0x85ebca6b), h, h)
	e.shifted(h, 13)
	VPMULLD(integer(0xc2b2ae35), h, h)
	e.shifted(h, 16)
	VPSRLD(U8(8), h, h)
	VPADDD(integer(uint32(e.lanes())), place, place)
	e.and(integer(magnitude), x, a)
	// numbers from the least normal one on: what is left out of the mantissa, against the hash
	e.and(integer(1<<22-1), a, small)
	VPSUBD(small, a, t)
	VPSLLD(U8(2), small, small)
	e.addWhere(small, h, integer(1<<22), t)
	VPMINUD(integer(math.Float32bits(6)), t, t)
	// those below it, in halves
	s, low := e.vec(), e.vec()
	VMULPS(broadcast(2), a, s)
	VCVTTPS2DQ(s, low)
	VCVTDQ2PS(low, low)
	VSUBPS(low, s, s)
	VMULPS(broadcast(1<<24), s, s)
	VCVTDQ2PS(h, h)
	if e.wide {
		k := K()
		VCMPPS(U8(1), s, h, k)
		VADDPS(broadcast(1), low, k, low)
		VMULPS(broadcast(0.5), low, low)
		under, nan := K(), K()
		VPCMPUD(U8(1), integer(math.Float32bits(1)), a, under)
		VMOVAPS(low, under, t)
		VPCMPUD(U8(6), integer(0x7f800000), a, nan)
		VMOVAPS(a, nan, t)
	} else {
		VCMPPS(U8(1), s, h, s)
		VANDPS(broadcast(1), s, s)
		VADDPS(s, low, low)
		VMULPS(broadcast(0.5), low, low)
		VMOVAPS(integer(math.Float32bits(1)), s)
		VPCMPGTD(a, s, s)
		VBLENDVPS(s, low, t, t)
		VPCMPGTD(integer(0x7f800000), a, s)
		VBLENDVPS(s, a, t, t)
	}
	e.and(integer(1<<31), x, x)
	e.or(x, t)
	return t
}

func (e *emitter) or(y, x vec) {
	if e.wide {
		VPORD(y, x, x)
	} else {
		VPOR(y, x, x)
	}
}

// addWhere adds by to x where limit > h, of integers below 2³¹.
func (e *emitter) addWhere(limit, h vec, by Op, x vec) {
	if e.wide {
		k := K()
		VPCMPGTD(h, limit, k)
		VPADDD(by, x, k, x)
		return
	}
	VPCMPGTD(h, limit, limit)
	VPAND(by, limit, limit)
	VPADDD(limit, x, x)
}

// butterfly emits two stages of a Hadamard transform of four rows, whose signs are given.
func (e *emitter) butterfly() {
	e.beginMove("butterfly", "func(a, b, c, d []float32, h *float32, by float32)",
		"has (a, b, c, d) times the four numbers at h become (a+b+c+d, a-b+c-d, a+b-c-d, a-b-c+d)·by, of sums of a and b first.")
	by, s := e.float("by"), e.fields(4)
	e.each(1, []string{"a", "b", "c", "d"}, func(m []Mem, _ int, masked bool) {
		var x [4]vec
		for i := range x {
			x[i] = e.load(m[i], masked)
			VMULPS(s[i], x[i], x[i])
		}
		pair := func(p, q vec) (vec, vec) {
			d := e.vec()
			VSUBPS(q, p, d)
			VADDPS(q, p, p)
			return p, d
		}
		x[0], x[1] = pair(x[0], x[1])
		x[2], x[3] = pair(x[2], x[3])
		x[0], x[2] = pair(x[0], x[2])
		x[1], x[3] = pair(x[1], x[3])
		for i := range x {
			VMULPS(by, x[i], x[i])
			e.store(x[i], m[i], masked)
		}
	})
	e.end()
}

// runLength is that of the runs of runMaxes and runs.
const runLength = 16

// perRun emits a loop over the runs of x, one for each number of y.
func (e *emitter) perRun(body func(run []Mem, one Mem), many, one string) {
	n, many1, one1 := count(one), base(many), base(one)
	again, done := e.label(), e.label()
	Label(again)
	TESTQ(n, n)
	JZ(LabelRef(done))
	var run []Mem
	for at := 0; at < runLength; at += e.lanes() {
		run = append(run, Mem{Base: many1, Disp: 4 * at})
	}
	body(run, Mem{Base: one1})
	ADDQ(U32(4*runLength), many1)
	ADDQ(U32(4), one1)
	DECQ(n)
	JMP(LabelRef(again))
	Label(done)
	e.end()
}

// runMaxes emits the greatest magnitudes of runs.
func (e *emitter) runMaxes() {
	e.beginMove("runMaxes", "func(y, x []float32)",
		"is the greatest |x| of each run of 16, of which a NaN is greater than all.")
	e.perRun(func(run []Mem, one Mem) {
		m := e.load(run[0], false)
		e.and(integer(magnitude), m, m)
		for _, r := range run[1:] {
			x := e.load(r, false)
			e.and(integer(magnitude), x, x)
			VPMAXUD(x, m, m)
		}
		VMOVSS(e.reduce(m, VPMAXUD), one)
	}, "x", "y")
}

// runs emits numbers that each become a run.
func (e *emitter) runs() {
	e.beginMove("runs", "func(y, x []float32)", "is each x sixteen times.")
	e.perRun(func(run []Mem, one Mem) {
		v := e.vec()
		VBROADCASTSS(one, v)
		for _, r := range run {
			e.store(v, r, false)
		}
	}, "y", "x")
}
