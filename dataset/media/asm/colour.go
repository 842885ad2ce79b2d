package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// triple is near·3 + far of 16 samples at a distance, or near·3 without far.
func triple(near, far reg.GPVirtual, disp int) reg.VecVirtual {
	s, t := YMM(), YMM()
	VPMOVZXBW(at(near, disp), t)
	VPADDW(t, t, s)
	VPADDW(t, s, s)
	VPMOVZXBW(at(far, disp), t)
	VPADDW(t, s, s)
	return s
}

// smooth22 writes the doubling of a row that is between two rows.
func smooth22() {
	begin("smooth22", "func(dst, near, far *byte, n int)",
		"doubles n·16 samples of near, weighed 3 to 1 with those of far. A sample before and one behind are read.")
	dst, near, far, n := arg("dst"), arg("near"), arg("far"), arg("n")
	eight, seven := fill(words(8, 8)), fill(words(7, 7))
	loop("next22", n, func() {
		s := triple(near, far, 0)
		before, behind := triple(near, far, -1), triple(near, far, 1)
		t := YMM()
		VPADDW(s, s, t)
		VPADDW(s, t, t)
		doubled(dst, t, before, behind, eight, seven, 4)
		ADDQ(Imm(16), near)
		ADDQ(Imm(16), far)
	})
	end()
}

// doubled writes (3s + before + even) >> shift and (3s + behind + odd) >> shift in turn.
func doubled(dst reg.GPVirtual, s3, before, behind, even, odd reg.VecVirtual, shift uint64) {
	VPADDW(s3, before, before)
	VPADDW(even, before, before)
	VPSRLW(Imm(shift), before, before)
	VPADDW(s3, behind, behind)
	VPADDW(odd, behind, behind)
	VPSRLW(Imm(shift), behind, behind)
	VPSLLW(Imm(8), behind, behind)
	VPOR(behind, before, before)
	VMOVDQU(before, at(dst, 0))
	ADDQ(Imm(32), dst)
}

// smooth21 writes the doubling of a row.
func smooth21() {
	begin("smooth21", "func(dst, near *byte, n int)", "doubles n·16 samples. A sample before and one behind are read.")
	dst, near, n := arg("dst"), arg("near"), arg("n")
	one, two := fill(words(1, 1)), fill(words(2, 2))
	loop("next21", n, func() {
		s, t, before, behind := YMM(), YMM(), YMM(), YMM()
		VPMOVZXBW(at(near, 0), s)
		VPMOVZXBW(at(near, -1), before)
		VPMOVZXBW(at(near, 1), behind)
		VPADDW(s, s, t)
		VPADDW(s, t, t)
		doubled(dst, t, before, behind, one, two, 2)
		ADDQ(Imm(16), near)
	})
	end()
}

// colours writes the conversion to RGB in libjpeg's fixed point.
func colours() {
	begin("colours", "func(dst, y, cb, cr *byte, n int)", "turns n·16 pixels of YCbCr into RGB.")
	dst, y, cb, cr, n := arg("dst"), arg("y"), arg("cb"), arg("cr"), arg("n")
	grey := fill(words(128, 128))
	loop("nextColours", n, func() {
		l, u, v := YMM(), YMM(), YMM()
		VPMOVZXBW(at(y, 0), l)
		VPMOVZXBW(at(cb, 0), u)
		VPMOVZXBW(at(cr, 0), v)
		VPSUBW(grey, u, u)
		VPSUBW(grey, v, v)
		g := green(l, u, v)
		r := product(v, 26345) // 1.402 - 1
		VPADDW(v, r, r)
		VPADDW(l, r, r)
		b := product(u, -14942) // 1.772 - 2
		VPADDW(u, b, b)
		VPADDW(u, b, b)
		VPADDW(l, b, b)
		VPACKUSWB(g, r, r)
		VPERMQ(Imm(0xd8), r, r)
		VPACKUSWB(b, b, b)
		VPERMQ(Imm(0xd8), b, b)
		gx := XMM()
		VEXTRACTI128(Imm(1), r, gx)
		interleave(dst, r.AsX(), gx, b.AsX())
		ADDQ(Imm(16), y)
		ADDQ(Imm(16), cb)
		ADDQ(Imm(16), cr)
		ADDQ(Imm(48), dst)
	})
	end()
}

// product is the rounded product of 16-bit numbers with k / 2^16.
func product(v reg.VecVirtual, k int) reg.VecVirtual {
	p := YMM()
	VPADDW(v, v, p)
	VPMULHW(words(k, k), p, p)
	VPSUBW(words(-1, -1), p, p)
	VPSRAW(Imm(1), p, p)
	return p
}

// green is y - 0.34414u - 0.71414v; the last factor is taken as 0.28586 - 1, to fit 16 bits.
func green(l, u, v reg.VecVirtual) reg.VecVirtual {
	low, high := YMM(), YMM()
	VPUNPCKLWD(v, u, low)
	VPUNPCKHWD(v, u, high)
	for _, h := range []reg.VecVirtual{low, high} {
		VPMADDWD(words(-22554, 18734), h, h)
		VPADDD(dwords(1<<15), h, h)
		VPSRAD(Imm(16), h, h)
	}
	VPACKSSDW(high, low, low)
	VPADDW(l, low, low)
	VPSUBW(v, low, low)
	return low
}

// interleave writes 16 pixels of three channels.
func interleave(dst reg.GPVirtual, channels ...reg.Register) {
	for part := range 3 {
		sum := XMM()
		for c, from := range channels {
			to := sum
			if c > 0 {
				to = XMM()
			}
			mask := constant("spread"+string(rune('0'+part))+string(rune('0'+c)), func(i int) byte {
				if k := part*16 + i; i < 16 && k%3 == c {
					return byte(k / 3)
				}
				return 0x80
			})
			VPSHUFB(mask, from, to)
			if c > 0 {
				VPOR(to, sum, sum)
			}
		}
		VMOVDQU(sum, at(dst, 16*part))
	}
}
