package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// weightLow is the number of bits in the lower part of a weight; the upper part makes up the rest.
const weightLow = 11

// finish adds the parts of sums, rounds them and takes away the bits below the point.
func finish(high, low reg.VecVirtual, half reg.VecVirtual, bits reg.VecVirtual) {
	VPSLLD(Imm(weightLow), high, high)
	VPADDD(low, high, high)
	VPADDD(half, high, high)
	VPSRAD(bits.AsX(), high, high)
}

// rounding returns registers with the bits below the point, and with half of one above it.
func rounding(bits reg.GPVirtual) (half, shift reg.VecVirtual) {
	half, shift = YMM(), YMM()
	VMOVQ(bits, shift.AsX())
	t := fill(dwords(1))
	VPSLLD(shift.AsX(), t, half)
	VPSRLD(Imm(1), half, half)
	return half, shift
}

// columns writes sums over rows.
func columns() {
	begin("columnSums", "func(dst, src *byte, stride, pairs int, w *uint16, n, bits int)", "weighs pairs of "+
		"rows, for n·32 bytes. A pair's weights are their upper parts, then their lower parts, of 16 bits each.")
	dst, src, stride, pairs, w, n, bits := arg("dst"), arg("src"), arg("stride"), arg("pairs"), arg("w"),
		arg("n"), arg("bits")
	half, shift := rounding(bits)
	zero := YMM()
	VPXOR(zero, zero, zero)
	loop("nextBytes", n, func() {
		high, low := make([]reg.VecVirtual, 4), make([]reg.VecVirtual, 4)
		for i := range 4 {
			high[i], low[i] = YMM(), YMM()
			VPXOR(high[i], high[i], high[i])
			VPXOR(low[i], low[i], low[i])
		}
		p, k, at1 := GP64(), GP64(), GP64()
		MOVQ(src, p)
		MOVQ(w, at1)
		MOVQ(pairs, k)
		loop("nextPair", k, func() {
			a, b, both := YMM(), YMM(), YMM()
			VMOVDQU(at(p, 0), a)
			VMOVDQU(Mem{Base: p, Index: stride, Scale: 1}, b)
			for i := range 4 {
				if i == 0 {
					VPUNPCKLBW(b, a, both)
				} else if i == 2 {
					VPUNPCKHBW(b, a, both)
				}
				x, y := YMM(), YMM()
				if i%2 == 0 {
					VPUNPCKLBW(zero, both, x)
				} else {
					VPUNPCKHBW(zero, both, x)
				}
				VPBROADCASTD(at(at1, 0), y)
				VPMADDWD(y, x, y)
				VPADDD(y, high[i], high[i])
				VPBROADCASTD(at(at1, 4), y)
				VPMADDWD(y, x, y)
				VPADDD(y, low[i], low[i])
			}
			LEAQ(Mem{Base: p, Index: stride, Scale: 2}, p)
			ADDQ(Imm(8), at1)
		})
		for i := range 4 {
			finish(high[i], low[i], half, shift)
		}
		VPACKSSDW(high[1], high[0], high[0])
		VPACKSSDW(high[3], high[2], high[2])
		VPACKUSWB(high[2], high[0], high[0])
		VMOVDQU(high[0], at(dst, 0))
		ADDQ(Imm(32), dst)
		ADDQ(Imm(32), src)
	})
	end()
}

// rows writes sums along two rows, which share the weights.
func rows() {
	begin("rowSums", "func(dst, src *byte, dstStep, srcStep int, first *int32, groups int, w *uint16, n, bits int)",
		"weighs groups of four pixels, for n pixels of two rows. A group's weights are their upper parts, then "+
			"their lower parts, of 16 bits each. 4 bytes behind the last group are read, and one behind the last "+
			"pixel is written.")
	dst, src, first, groups, w, n, bits := arg("dst"), arg("src"), arg("first"), arg("groups"), arg("w"),
		arg("n"), arg("bits")
	dstStep, srcStep := arg("dstStep"), arg("srcStep")
	half, shift := rounding(bits)
	// two pixels as pairs of their reds, greens and blues, in each half
	pairs := fill(constant("pairs", func(i int) byte {
		if i%2 == 1 || i%16 >= 12 {
			return 0x80
		}
		return byte(i%16/4 + i%4/2*3 + i/16*6)
	}))
	spread := fill(constant("halves", func(i int) byte {
		if i%4 == 0 {
			return byte(i / 16)
		}
		return 0
	}))
	loop("nextPixel", n, func() {
		p, k := GP64(), GP64()
		MOVLQSX(Mem{Base: first}, p)
		LEAQ(Mem{Base: p, Index: p, Scale: 2}, p)
		ADDQ(src, p)
		ADDQ(Imm(4), first)
		high, low := []reg.VecVirtual{YMM(), YMM()}, []reg.VecVirtual{YMM(), YMM()}
		for row := range 2 {
			VPXOR(high[row], high[row], high[row])
			VPXOR(low[row], low[row], low[row])
		}
		MOVQ(groups, k)
		loop("nextGroup", k, func() {
			upper, lower, x, y := YMM(), YMM(), YMM(), YMM()
			VPBROADCASTQ(at(w, 0), upper)
			VPERMILPS(spread, upper, upper)
			VPBROADCASTQ(at(w, 8), lower)
			VPERMILPS(spread, lower, lower)
			for row, from := range []Mem{at(p, 0), {Base: p, Index: srcStep, Scale: 1}} {
				VBROADCASTI128(from, x)
				VPSHUFB(pairs, x, x)
				VPMADDWD(upper, x, y)
				VPADDD(y, high[row], high[row])
				VPMADDWD(lower, x, x)
				VPADDD(x, low[row], low[row])
			}
			ADDQ(Imm(12), p)
			ADDQ(Imm(16), w)
		})
		for row := range 2 {
			VPSLLD(Imm(weightLow), high[row], high[row])
			VPADDD(low[row], high[row], high[row])
		}
		// the halves of a row are added; each half then has a row
		VPERM2I128(Imm(0x20), high[1], high[0], low[0])
		VPERM2I128(Imm(0x31), high[1], high[0], low[1])
		sum := low[0]
		VPADDD(low[1], sum, sum)
		VPADDD(half, sum, sum)
		VPSRAD(shift.AsX(), sum, sum)
		VPACKSSDW(sum, sum, sum)
		VPACKUSWB(sum, sum, sum)
		other := XMM()
		VEXTRACTI128(Imm(1), sum, other)
		VMOVD(sum.AsX(), at(dst, 0))
		VMOVD(other, Mem{Base: dst, Index: dstStep, Scale: 1})
		ADDQ(Imm(3), dst)
	})
	end()
}
