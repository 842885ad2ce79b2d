package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Fields of convArgs and of sumArgs, eight bytes each: the order of the structs in conv_direct.go and conv_direct_dw.go.
const (
	convA = iota
	convTable
	convTaps
	convEnd
	convK
	convStep
	convB
	convHalf
	convBias
	convC
	convRow
	convRound
	convN
)

const (
	sumA = iota
	sumAStep
	sumANext
	sumB
	sumHalf
	sumBStep
	sumTable
	sumEnd
	sumK
	sumC
	sumRow
	sumCNext
	sumAcc
	sumN
)

// arguments are the fields of the struct that the only parameter points to.
type arguments struct{ at reg.GPVirtual }

func (a arguments) field(i int) Mem { return Mem{Base: a.at, Disp: 8 * i} }

// value is a field in a fresh register.
func (a arguments) value(i int) reg.GPVirtual {
	r := GP64()
	MOVQ(a.field(i), r)
	return r
}

// convs writes the micro-kernels of convolutions: of float32s, and with AVX-512 of pairs of bfloat16.
func (e *emitter) convs() {
	e.convTile("convTile", e.multiply, false)
	e.sumTile("sumTile", e.multiply)
	e.addRuns()
	if e.wide {
		e.convTile("convPairs", dotPairs, true)
		e.sumTile("sumPairs", dotPairs)
	}
}

// multiply is acc += x·w.
func (e *emitter) multiply(x, w, acc vec) { VFMADD231PS(x, w, acc) }

// places is the rows of a tile, in three groups whose rows lie evenly apart.
func (e *emitter) places() int {
	if e.wide {
		return 12
	}
	return 6
}

// second is where the second vector of a row of a panel of 16 columns is: in the next panel with AVX-512.
func (e *emitter) second(p, half reg.GPVirtual, disp int) Mem {
	if e.wide {
		return Mem{Base: p, Index: half, Scale: 1, Disp: disp}
	}
	return Mem{Base: p, Disp: disp + 32}
}

// convTile writes a micro-kernel whose rows are places of a tensor: three groups of them, each anywhere, and
// whose sum runs over pieces of the tensor, the same for all of them.
func (e *emitter) convTile(name string, multiply func(x, w, acc vec), rounds bool) {
	e.begin(name, "func(args *int)", "multiplies tiles of places, see convArgs.")
	args := arguments{load(Param("args"))}
	table, step, half := args.value(convTable), args.value(convStep), args.value(convHalf)
	group := e.places() / 3
	step3 := GP64()
	LEAQ(Mem{Base: step, Index: step, Scale: 2}, step3)
	acc := make([][2]vec, 3*group)
	for i := range acc {
		acc[i] = [2]vec{e.vec(), e.vec()}
	}
	next, tap, store, finish := e.label(), e.label(), e.label(), e.label()
	Label(next)
	CMPQ(args.field(convN), Imm(0))
	JE(LabelRef(finish))
	bias := args.value(convBias)
	for j := range 2 {
		VMOVUPS(Mem{Base: bias, Disp: j * e.bytes()}, acc[0][j])
		for i := range acc[1:] {
			VMOVUPS(acc[0][j], acc[1+i][j])
		}
	}
	b, taps := GP64(), args.value(convTaps)
	Label(tap)
	CMPQ(taps, args.field(convEnd))
	JE(LabelRef(store))
	at := GP64()
	MOVQ(Mem{Base: taps, Disp: 8}, b)
	ADDQ(args.field(convB), b)
	MOVQ(Mem{Base: taps}, at)
	ADDQ(args.field(convA), at)
	p := make([]reg.GPVirtual, 3)
	for g := range p {
		p[g] = GP64()
		MOVQ(Mem{Base: table, Disp: 8 * g}, p[g])
		ADDQ(at, p[g])
	}
	e.convSum(args.value(convK), p, b, half, func(u int) {
		bv := [2]vec{e.vec(), e.vec()}
		VMOVUPS(Mem{Base: b, Disp: 64 * u}, bv[0])
		VMOVUPS(e.second(b, half, 64*u), bv[1])
		PREFETCHT0(Mem{Base: b, Disp: 64*u + convAhead})
		if e.wide {
			PREFETCHT0(e.second(b, half, 64*u+convAhead))
		}
		for i := range acc {
			x := e.vec()
			m := Mem{Base: p[i/group], Disp: 4 * u}
			switch i % group {
			case 1:
				m.Index, m.Scale = step, 1
			case 2:
				m.Index, m.Scale = step, 2
			case 3:
				m.Index, m.Scale = step3, 1
			}
			VBROADCASTSS(m, x)
			multiply(x, bv[0], acc[i][0])
			multiply(x, bv[1], acc[i][1])
		}
	})
	ADDQ(Imm(16), taps)
	JMP(LabelRef(tap))
	Label(store)
	e.storePlaces(args, table, acc, rounds)
	ADDQ(Imm(48), table)
	DECQ(args.field(convN))
	JMP(LabelRef(next))
	Label(finish)
	e.end()
}

// storePlaces writes a tile, rounded to bfloat16 if the arguments say so and the kernel can.
func (e *emitter) storePlaces(args arguments, table reg.GPVirtual, acc [][2]vec, rounds bool) {
	c, row := args.value(convC), args.value(convRow)
	group := len(acc) / 3
	whole, stored := e.label(), e.label()
	each := func(half bool) {
		for g := range 3 {
			to := GP64()
			MOVQ(Mem{Base: table, Disp: 24 + 8*g}, to)
			ADDQ(c, to)
			for i := range group {
				for j, v := range acc[g*group+i] {
					p := pointer{to, half}
					e.put(v, p.at(e, j), half, false)
				}
				ADDQ(row, to)
			}
		}
	}
	if rounds {
		CMPQ(args.field(convRound), Imm(0))
		JE(LabelRef(whole))
		each(true)
		JMP(LabelRef(stored))
		Label(whole)
	}
	each(false)
	Label(stored)
}

// convAhead is how far ahead panels are asked for, in bytes.
const convAhead = 1024

// convSum emits the loop over k, four steps at a time and then the rest.
func (e *emitter) convSum(k reg.GPVirtual, p []reg.GPVirtual, b, half reg.GPVirtual, body func(u int)) {
	for _, unroll := range []int{4, 1} {
		again, done := e.label(), e.label()
		SUBQ(Imm(uint64(unroll)), k)
		JL(LabelRef(done))
		Label(again)
		for u := range unroll {
			body(u)
		}
		for _, r := range p {
			ADDQ(Imm(uint64(4*unroll)), r)
		}
		ADDQ(U32(uint32(64*unroll)), b)
		SUBQ(Imm(uint64(unroll)), k)
		JGE(LabelRef(again))
		Label(done)
		ADDQ(Imm(uint64(unroll)), k)
	}
}

// sumTile writes the micro-kernel of weights' gradients: a sum over runs of places, whose rows are outputs
// and whose columns are inputs.
func (e *emitter) sumTile(name string, multiply func(x, w, acc vec)) {
	e.begin(name, "func(args *int)", "adds up products of places, see sumArgs.")
	args := arguments{load(Param("args"))}
	aCur, cCur := args.value(sumA), args.value(sumC)
	half, aStep, bStep := args.value(sumHalf), args.value(sumAStep), args.value(sumBStep)
	mr := e.places()
	acc := make([][2]vec, mr)
	for i := range acc {
		acc[i] = [2]vec{e.vec(), e.vec()}
	}
	next, segment, store, finish := e.label(), e.label(), e.label(), e.label()
	Label(next)
	CMPQ(args.field(sumN), Imm(0))
	JE(LabelRef(finish))
	for i := range acc {
		e.clear(acc[i][0])
		e.clear(acc[i][1])
	}
	table := args.value(sumTable)
	Label(segment)
	CMPQ(table, args.field(sumEnd))
	JE(LabelRef(store))
	a, b, k := GP64(), GP64(), args.value(sumK)
	MOVQ(Mem{Base: table}, a)
	ADDQ(aCur, a)
	MOVQ(Mem{Base: table, Disp: 8}, b)
	ADDQ(args.field(sumB), b)
	again, done := e.label(), e.label()
	TESTQ(k, k)
	JZ(LabelRef(done))
	Label(again)
	bv := [2]vec{e.vec(), e.vec()}
	VMOVUPS(Mem{Base: b}, bv[0])
	VMOVUPS(e.second(b, half, 0), bv[1])
	ADDQ(bStep, b)
	for i := range acc {
		x := e.vec()
		VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, x)
		multiply(x, bv[0], acc[i][0])
		multiply(x, bv[1], acc[i][1])
	}
	ADDQ(aStep, a)
	DECQ(k)
	JNZ(LabelRef(again))
	Label(done)
	ADDQ(Imm(16), table)
	JMP(LabelRef(segment))
	Label(store)
	to, row := GP64(), args.value(sumRow)
	set, stored := e.label(), e.label()
	MOVQ(cCur, to)
	CMPQ(args.field(sumAcc), Imm(0))
	JE(LabelRef(set))
	for _, adding := range []bool{true, false} {
		for i := range acc {
			for j, v := range acc[i] {
				m := Mem{Base: to, Disp: j * e.bytes()}
				if adding {
					VADDPS(m, v, v)
				}
				VMOVUPS(v, m)
			}
			ADDQ(row, to)
		}
		if adding {
			JMP(LabelRef(stored))
			Label(set)
		}
	}
	Label(stored)
	ADDQ(args.field(sumANext), aCur)
	ADDQ(args.field(sumCNext), cCur)
	DECQ(args.field(sumN))
	JMP(LabelRef(next))
	Label(finish)
	e.end()
}

// addRuns writes addRuns, see isa. Each run is cut into whole vectors and what is left of it into powers of
// two: a load behind a store under a mask would wait for it where both lie in one vector.
func (e *emitter) addRuns() {
	e.begin("addRuns", "func(y []float32, step int, x []float32, ld, n, width int)", "adds runs, see isa.")
	y, x, n := base("y"), base("x"), count4("n")
	step, ld, width := bytesOf("step"), bytesOf("ld"), bytesOf("width")
	next, finish := e.label(), e.label()
	Label(next)
	TESTQ(n, n)
	JZ(LabelRef(finish))
	at, left := GP64(), GP64()
	XORQ(at, at)
	MOVQ(width, left)
	add := func(bytes int) {
		a, b := Mem{Base: y, Index: at, Scale: 1}, Mem{Base: x, Index: at, Scale: 1}
		v, u := ZMM(), ZMM()
		switch bytes {
		case 64:
			VMOVUPS(a, v)
			VADDPS(b, v, v)
			VMOVUPS(v, a)
		case 32:
			VMOVUPS(a, v.AsY())
			VADDPS(b, v.AsY(), v.AsY())
			VMOVUPS(v.AsY(), a)
		case 16:
			VMOVUPS(a, v.AsX())
			VADDPS(b, v.AsX(), v.AsX())
			VMOVUPS(v.AsX(), a)
		case 8:
			VMOVSD(a, v.AsX())
			VMOVSD(b, u.AsX())
			VADDPS(u.AsX(), v.AsX(), v.AsX())
			VMOVSD(v.AsX(), a)
		default:
			VMOVSS(a, v.AsX())
			VADDSS(b, v.AsX(), v.AsX())
			VMOVSS(v.AsX(), a)
		}
		ADDQ(Imm(uint64(bytes)), at)
	}
	whole, part := e.label(), e.label()
	Label(whole)
	CMPQ(left, U32(uint32(e.bytes())))
	JL(LabelRef(part))
	add(e.bytes())
	SUBQ(U32(uint32(e.bytes())), left)
	JMP(LabelRef(whole))
	Label(part)
	for b := e.bytes() / 2; b >= 4; b /= 2 {
		skip := e.label()
		TESTQ(U32(uint32(b)), left)
		JZ(LabelRef(skip))
		add(b)
		Label(skip)
	}
	ADDQ(step, y)
	ADDQ(ld, x)
	DECQ(n)
	JMP(LabelRef(next))
	Label(finish)
	e.end()
}
