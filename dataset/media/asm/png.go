package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// png writes the filters of PNG's rows that take pixels one after another.
func png() {
	unfilterPixels("unfilterSub", "the pixel before", func(left, _, _ reg.VecVirtual) reg.VecVirtual {
		return left
	})
	unfilterPixels("unfilterMean", "the mean of the pixel before and of the one above",
		func(left, up, _ reg.VecVirtual) reg.VecVirtual {
			m := XMM()
			VPADDW(up, left, m)
			VPSRLW(Imm(1), m, m)
			return m
		})
	unfilterPixels("unfilterPaeth", "whichever of left, above and across is nearest to what they make likely", nearest3)
	unfilterUp()
	dropAlpha()
}

// unfilterPixels writes a filter of pixels of 3 or 4 bytes, which are words here.
func unfilterPixels(name, doc string, likely func(left, up, across reg.VecVirtual) reg.VecVirtual) {
	begin(name, "func(dst, src, above *byte, n, size int)", "adds "+doc+
		" to n pixels of 3 or 4 bytes; up to 5 bytes behind the last one are read, and one is written.")
	dst, src, above, n, size := arg("dst"), arg("src"), arg("above"), arg("n"), arg("size")
	left, across, low := XMM(), XMM(), XMM()
	VPXOR(left, left, left)
	VPXOR(across, across, across)
	VPCMPEQW(low, low, low)
	VPSRLW(Imm(8), low, low)
	loop(name+"Next", n, func() {
		up, x, sum := XMM(), XMM(), XMM()
		VPMOVZXBW(at(above, 0), up)
		VPMOVZXBW(at(src, 0), x)
		VPADDW(likely(left, up, across), x, left)
		VPAND(low, left, left)
		VPACKUSWB(left, left, sum)
		VMOVD(sum, at(dst, 0))
		VMOVDQA(up, across)
		for _, p := range []reg.GPVirtual{dst, src, above} {
			ADDQ(size, p)
		}
	})
	end()
}

// nearest3 is PNG's predictor of Paeth.
func nearest3(left, up, across reg.VecVirtual) reg.VecVirtual {
	dl, du, d, least := XMM(), XMM(), XMM(), XMM()
	VPSUBW(across, up, dl)   // how far left is from left + up - across
	VPSUBW(across, left, du) // how far the one above is
	VPADDW(dl, du, d)
	for _, v := range []reg.VecVirtual{dl, du, d} {
		VPABSW(v, v)
	}
	v := XMM()
	VPMINSW(dl, du, least)
	VPMINSW(d, least, least)
	VPCMPEQW(least, du, du)
	VPBLENDVB(du, up, across, v)
	VPCMPEQW(least, dl, dl)
	VPBLENDVB(dl, left, v, v)
	return v
}

func unfilterUp() {
	begin("unfilterUp", "func(dst, src, above *byte, n int)", "adds to n·32 bytes those above them.")
	dst, src, above, n := arg("dst"), arg("src"), arg("above"), arg("n")
	loop("nextUp", n, func() {
		v := YMM()
		VMOVDQU(at(src, 0), v)
		VPADDB(at(above, 0), v, v)
		VMOVDQU(v, at(dst, 0))
		for _, p := range []reg.GPVirtual{dst, src, above} {
			ADDQ(Imm(32), p)
		}
	})
	end()
}

// dropAlpha writes the dropping of every pixel's fourth byte.
func dropAlpha() {
	begin("dropAlpha", "func(dst, px *byte, n int)", "drops the alpha of n·8 pixels; 4 bytes behind the last are written.")
	dst, px, n := arg("dst"), arg("px"), arg("n")
	mask := fill(constant("dropAlpha", func(i int) byte {
		if i %= 16; i < 12 {
			return byte(i/3*4 + i%3)
		}
		return 0x80
	}))
	loop("dropAlphaNext", n, func() {
		v, upper := YMM(), XMM()
		VMOVDQU(at(px, 0), v)
		VPSHUFB(mask, v, v)
		VEXTRACTI128(Imm(1), v, upper)
		VMOVDQU(v.AsX(), at(dst, 0))
		VMOVDQU(upper, at(dst, 12))
		ADDQ(Imm(32), px)
		ADDQ(Imm(24), dst)
	})
	end()
}
