package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// inverse writes the transform of two blocks, one in each half of a register.
func inverse() {
	begin("inversePair", "func(a, b, qa, qb *int16, outA *byte, strideA int, outB *byte, strideB int)",
		"transforms two blocks of coefficients into pixels.")
	a, b, qa, qb := arg("a"), arg("b"), arg("qa"), arg("qb")
	in := AllocLocal(12 * 32)
	half := AllocLocal(8 * 32)
	for y := range 8 {
		x, q := YMM(), YMM()
		VMOVDQU(at(a, 16*y), x.AsX())
		VINSERTI128(Imm(1), at(b, 16*y), x, x)
		VMOVDQU(at(qa, 16*y), q.AsX())
		VINSERTI128(Imm(1), at(qb, 16*y), q, q)
		VPMULLW(q, x, x)
		VMOVDQU(x, in.Offset(32*y))
	}
	r := transposed(pass(in, half, 11))
	for y, v := range r {
		VMOVDQU(v, in.Offset(32*y))
	}
	r = transposed(pass(in, half, 18))
	outA, outB, strideA, strideB := arg("outA"), arg("outB"), arg("strideA"), arg("strideB")
	sign := fill(constant("sign", func(int) byte { return 0x80 }))
	for y := 0; y < 8; y += 2 {
		VPACKSSWB(r[y+1], r[y], r[y])
		VPXOR(sign, r[y], r[y])
		other := XMM()
		VEXTRACTI128(Imm(1), r[y], other)
		VMOVQ(r[y].AsX(), at(outA, 0))
		VMOVHPS(r[y].AsX(), Mem{Base: outA, Index: strideA, Scale: 1})
		VMOVQ(other, at(outB, 0))
		VMOVHPS(other, Mem{Base: outB, Index: strideB, Scale: 1})
		LEAQ(Mem{Base: outA, Index: strideA, Scale: 2}, outA)
		LEAQ(Mem{Base: outB, Index: strideB, Scale: 2}, outB)
	}
	end()
}

// pass transforms columns of 16-bit numbers; their scaled results have shift bits less.
func pass(in, half Mem, shift uint64) []reg.VecVirtual {
	row := func(i int) Mem { return in.Offset(32 * i) }
	sums := []struct {
		a, b int
		sub  bool
	}{{0, 4, false}, {0, 4, true}, {7, 3, false}, {5, 1, false}}
	for i, s := range sums {
		v := YMM()
		VMOVDQU(row(s.a), v)
		if s.sub {
			VPSUBW(row(s.b), v, v)
		} else {
			VPADDW(row(s.b), v, v)
		}
		VMOVDQU(v, row(8+i))
	}
	out := make([]reg.VecVirtual, 8)
	for h := range 2 {
		butterflies(h == 1, row, func(i int, v reg.VecVirtual) {
			VPADDD(dwords(1<<(shift-1)), v, v)
			VPSRAD(Imm(shift), v, v)
			if h == 0 {
				VMOVDQU(v, half.Offset(32*i))
				return
			}
			out[i] = YMM()
			VMOVDQU(half.Offset(32*i), out[i])
			VPACKSSDW(v, out[i], out[i])
		})
	}
	return out
}

// butterflies computes one half of the columns and hands out each result.
func butterflies(high bool, row func(int) Mem, result func(i int, v reg.VecVirtual)) {
	pair := func(a, b int) reg.VecVirtual {
		x, v := YMM(), YMM()
		VMOVDQU(row(a), x)
		if high {
			VPUNPCKHWD(row(b), x, v)
		} else {
			VPUNPCKLWD(row(b), x, v)
		}
		return v
	}
	times := func(v reg.VecVirtual, a, b int) reg.VecVirtual {
		p := YMM()
		VPMADDWD(words(a, b), v, p)
		return p
	}
	shifted := func(i int) reg.VecVirtual {
		v := pair(i, i)
		VPSRAD(Imm(16), v, v)
		VPSLLD(Imm(13), v, v)
		return v
	}
	both := func(a, b reg.VecVirtual) (sum, difference reg.VecVirtual) {
		sum, difference = YMM(), YMM()
		VPADDD(b, a, sum)
		VPSUBD(b, a, difference)
		return sum, difference
	}
	even := pair(2, 6)
	e0, e3 := both(shifted(8), times(even, 10703, 4433))
	e1, e2 := both(shifted(9), times(even, 4433, -10704))
	z := pair(10, 11)
	z3, z4 := times(z, -6436, 9633), times(z, 9633, 6437)
	emit := func(i int, e, o, z reg.VecVirtual) {
		VPADDD(z, o, o)
		sum, difference := both(e, o)
		result(i, sum)
		result(7-i, difference)
	}
	p71 := pair(7, 1)
	emit(0, e0, times(p71, -7373, 4926), z4)
	emit(3, e3, times(p71, -4927, -7373), z3)
	p53 := pair(5, 3)
	emit(1, e1, times(p53, -20995, 4177), z3)
	emit(2, e2, times(p53, -4176, -20995), z4)
}

// transposed transposes 8 by 8 numbers of 16 bits in each half.
func transposed(r []reg.VecVirtual) []reg.VecVirtual {
	// after a step the results of rows i and i+4 stand together, which turns the bits of an index by one
	step := func(r []reg.VecVirtual) (out []reg.VecVirtual) {
		for i := range 4 {
			low, high := YMM(), YMM()
			VPUNPCKLWD(r[i+4], r[i], low)
			VPUNPCKHWD(r[i+4], r[i], high)
			out = append(out, low, high)
		}
		return out
	}
	for range 3 {
		r = step(r)
	}
	return r
}
