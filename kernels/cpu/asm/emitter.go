package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vec is a vector register of the emitter's width.
type vec = reg.VecVirtual

// emitter writes primitives for one width of vectors: 16 float32s (AVX-512F, BW, DQ, VL) or 8 (AVX2, FMA, F16C).
type emitter struct {
	wide   bool
	suffix string

	flush  bool
	mxcsr  Mem // where the caller's control register is kept
	name   string
	labels int
	mask   Op // lanes of the tail: a K register, or a vector of all ones and zeros
	consts map[float32]Op
	short  map[string]bool // slices of 16-bit elements
}

// lanes is the number of float32s in a vector.
func (e *emitter) lanes() int {
	if e.wide {
		return 16
	}
	return 8
}

func (e *emitter) bytes() int { return e.lanes() * 4 }

// vec is a fresh vector register: 16 floats with AVX-512, else 8.
func (e *emitter) vec() vec {
	if e.wide {
		return ZMM()
	}
	return YMM()
}

// half is the vector of half the width.
func (e *emitter) half() vec {
	if e.wide {
		return YMM()
	}
	return XMM()
}

// begin starts a function that calculates. Subnormal numbers count as zero in it: arithmetic on them is up
// to 200 times slower.
func (e *emitter) begin(name, signature, doc string) {
	e.beginMove(name, signature, doc)
	e.flush = true
	e.mxcsr = AllocLocal(8)
	r := GP32()
	VSTMXCSR(e.mxcsr)
	MOVL(e.mxcsr, r)
	ORL(U32(0x8040), r)
	MOVL(r, e.mxcsr.Offset(4))
	VLDMXCSR(e.mxcsr.Offset(4))
}

// beginMove starts a function that only moves or converts, for which the control register does not matter.
func (e *emitter) beginMove(name, signature, doc string) {
	e.name, e.labels, e.consts, e.flush, e.short = name+e.suffix, 0, map[float32]Op{}, false, map[string]bool{}
	TEXT(e.name, NOSPLIT, signature)
	Comment(e.name + " " + doc) // here alone: stubs of one line each say nothing more
	Pragma("noescape")
}

// end restores the control register, clears the upper halves and returns.
func (e *emitter) end() {
	if e.flush {
		VLDMXCSR(e.mxcsr)
	}
	VZEROUPPER()
	RET()
}

// label is a label that no other place of the function has.
func (e *emitter) label() string {
	e.labels++
	return fmt.Sprintf("l%d", e.labels)
}

func base(name string) reg.GPVirtual  { return load(Param(name).Base()) }
func count(name string) reg.GPVirtual { return load(Param(name).Len()) }

// load reads an integer or pointer parameter.
func load(c gotypes.Component) reg.GPVirtual {
	b, err := c.Resolve()
	if err != nil {
		panic(err)
	}
	r := GP64()
	MOVQ(b.Addr, r)
	return r
}

// float broadcasts a float32 parameter.
func (e *emitter) float(name string) vec {
	b, err := Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := e.vec()
	VBROADCASTSS(b.Addr, v)
	return v
}

// constant is a vector of equal numbers: a register with AVX-512, memory with AVX2, which has too few registers.
func (e *emitter) constant(x float32) Op {
	if c, ok := e.consts[x]; ok {
		return c
	}
	m := broadcast(x)
	if !e.wide {
		e.consts[x] = m
		return m
	}
	v := e.vec()
	VMOVUPS(m, v)
	e.consts[x] = v
	return v
}

// register is a constant that must be in a register.
func (e *emitter) register(x float32) vec {
	v := e.vec()
	VMOVUPS(broadcast(x), v)
	return v
}

var broadcasts = map[float32]Mem{}

// broadcast is the address of 16 copies of a constant, made once per constant.
func broadcast(x float32) Mem {
	if m, ok := broadcasts[x]; ok {
		return m
	}
	m := GLOBL(fmt.Sprintf("f%08x", math.Float32bits(x)), RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(math.Float32bits(x)))
	}
	broadcasts[x] = m
	return m
}

var maskTable *Mem

// tail sets the mask for the last n lanes, 0 < n < lanes.
func (e *emitter) tail(n reg.GPVirtual) {
	if e.wide {
		ones := GP32()
		MOVL(U32(0xffffffff), ones)
		BZHIL(n.As32(), ones, ones)
		k := K()
		KMOVW(ones, k)
		e.mask = k
		return
	}
	if maskTable == nil {
		m := GLOBL("tailMask", RODATA|NOPTR)
		for i := range 8 {
			DATA(4*i, U32(0xffffffff))
		}
		for i := range 8 {
			DATA(32+4*i, U32(0))
		}
		maskTable = &m
	}
	at, off, v := GP64(), GP64(), YMM()
	LEAQ(*maskTable, at)
	MOVQ(n, off)
	NEGQ(off)
	VMOVUPS(Mem{Base: at, Index: off, Scale: 4, Disp: 32}, v)
	e.mask = v
}

// load reads a vector; with masked the lanes of the tail only, the others 0.
func (e *emitter) load(m Mem, masked bool) vec {
	v := e.vec()
	switch {
	case !masked:
		VMOVUPS(m, v)
	case e.wide:
		VMOVUPS_Z(m, e.mask, v)
	default:
		VMASKMOVPS(m, e.mask, v)
	}
	return v
}

// get reads a vector of float32s, or of bfloat16s if half.
func (e *emitter) get(m Mem, half, masked bool) vec {
	if !half {
		return e.load(m, masked)
	}
	v := e.vec()
	if masked {
		VPMOVZXWD_Z(m, e.mask, v)
	} else {
		VPMOVZXWD(m, v)
	}
	VPSLLD(Imm(16), v, v)
	return v
}

// store emits a store, of the first elements only if masked, as at the end of a slice.
func (e *emitter) store(v vec, m Mem, masked bool) {
	switch {
	case !masked:
		VMOVUPS(v, m)
	case e.wide:
		VMOVUPS(v, e.mask, m)
	default:
		VMASKMOVPS(v, e.mask, m)
	}
}

// keep clears the lanes of v beyond the tail.
func (e *emitter) keep(v vec, masked bool) {
	switch {
	case !masked:
	case e.wide:
		VMOVAPS_Z(v, e.mask, v)
	default:
		VANDPS(e.mask, v, v)
	}
}

// zero is a cleared register.
func (e *emitter) zero() vec {
	v := e.vec()
	e.clear(v)
	return v
}

// clear emits setting a register to 0.
func (e *emitter) clear(v vec) {
	if e.wide {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
}

// pointer is where a loop is in one slice.
type pointer struct {
	reg  reg.GPVirtual
	half bool // 16-bit elements
}

// at is the vector with the given number from the pointer on.
func (p pointer) at(e *emitter, u int) Mem { return Mem{Base: p.reg, Disp: p.bytes(e) * u} }

// bytes is how long a vector of elements is.
func (p pointer) bytes(e *emitter) int {
	if p.half {
		return e.bytes() / 2
	}
	return e.bytes()
}

// loop runs body over n elements at the pointers: unroll vectors at a time, then one, then the masked rest.
// body gets the number of the vector and whether to mask.
func (e *emitter) loop(n reg.GPVirtual, ptrs []pointer, unroll int, body func(u int, masked bool)) {
	for _, u := range []int{unroll, 1} {
		again, done := e.label(), e.label()
		Label(again)
		CMPQ(n, U32(uint32(u*e.lanes())))
		JL(LabelRef(done))
		for i := range u {
			body(i, false)
		}
		for _, p := range ptrs {
			ADDQ(U32(uint32(u*p.bytes(e))), p.reg)
		}
		SUBQ(U32(uint32(u*e.lanes())), n)
		JMP(LabelRef(again))
		Label(done)
		if unroll == 1 {
			break
		}
	}
	end := e.label()
	TESTQ(n, n)
	JZ(LabelRef(end))
	e.tail(n)
	body(0, true)
	Label(end)
}

// reduce folds a vector into its lowest lane with op (VADDPS or VMAXPS).
func (e *emitter) reduce(v vec, op func(...Op)) reg.Register {
	if e.wide {
		h := YMM()
		VEXTRACTF64X4(U8(1), v, h)
		op(h, v.AsY(), v.AsY())
	}
	x, t := v.AsX(), XMM()
	VEXTRACTF128(U8(1), v.AsY(), t)
	op(t, x, x)
	VMOVHLPS(x, x, t)
	op(t, x, x)
	VMOVSHDUP(x, t)
	op(t, x, x)
	return x
}

// result returns the lowest lane of x.
func (e *emitter) result(x Op) {
	b, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	VMOVSS(x, b.Addr)
	e.end()
}
