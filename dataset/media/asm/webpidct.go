package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const webpStride = 32 // of the area in which a macroblock is made

// idctAdd writes the inverse transform of a 4×4 block.
func idctAdd() {
	begin("idctAdd", "func(dst *byte, coef *int16)", "adds the inverse transform of a 4×4 block to its prediction.")
	dst, coef := arg("dst"), arg("coef")
	x := make([]reg.VecVirtual, 4)
	for i := range x {
		x[i] = XMM()
		VMOVQ(at(coef, 8*i), x[i])
	}
	x = turned(butterfly(x))
	VPADDW(words(4, 4), x[0], x[0])
	x = turned(butterfly(x))
	zero := XMM()
	VPXOR(zero, zero, zero)
	for i, v := range x {
		p := XMM()
		VMOVD(at(dst, webpStride*i), p)
		VPUNPCKLBW(zero, p, p)
		VPSRAW(Imm(3), v, v)
		VPADDW(v, p, p)
		VPACKUSWB(p, p, p)
		VMOVD(p, at(dst, webpStride*i))
	}
	RET()
}

// idctAdd4 writes the inverse transform of four 4×4 blocks: beside each other, or two above two.
func idctAdd4(name string, square bool, doc string) {
	begin(name, "func(dst *byte, coef *int16)", doc)
	dst, coef := arg("dst"), arg("coef")
	x := make([]reg.VecVirtual, 4)
	for i := range x {
		x[i] = YMM()
		upper := XMM()
		VMOVQ(at(coef, 8*i), x[i].AsX())
		VMOVHPS(at(coef, 32+8*i), x[i].AsX(), x[i].AsX())
		VMOVQ(at(coef, 64+8*i), upper)
		VMOVHPS(at(coef, 96+8*i), upper, upper)
		VINSERTI128(Imm(1), upper, x[i], x[i])
	}
	x = turnedTwice(butterfly(x))
	VPADDW(words(4, 4), x[0], x[0])
	x = turnedTwice(butterfly(x))
	for i, v := range x {
		p, upper := YMM(), XMM()
		row := at(dst, webpStride*i)
		if square {
			lower := at(dst, webpStride*(i+4))
			VMOVQ(row, p.AsX())
			VMOVHPS(lower, p.AsX(), p.AsX())
			VPMOVZXBW(p.AsX(), p)
		} else {
			VPMOVZXBW(row, p)
		}
		VPSRAW(Imm(3), v, v)
		VPADDW(v, p, p)
		VEXTRACTI128(Imm(1), p, upper)
		VPACKUSWB(upper, p.AsX(), p.AsX())
		if square {
			VMOVQ(p.AsX(), row)
			VMOVHPS(p.AsX(), at(dst, webpStride*(i+4)))
			continue
		}
		VMOVDQU(p.AsX(), row)
	}
	end()
}

// alike is a register of the same kind.
func alike(v reg.VecVirtual) reg.VecVirtual {
	if v.Size() == 32 {
		return YMM()
	}
	return XMM()
}

// butterfly is one direction of the transform.
func butterfly(x []reg.VecVirtual) []reg.VecVirtual {
	same := func() reg.VecVirtual { return alike(x[0]) }
	a, b, c, e := same(), same(), same(), same()
	VPADDW(x[2], x[0], a)
	VPSUBW(x[2], x[0], b)
	high := func(v reg.VecVirtual, by int) reg.VecVirtual {
		p := same()
		VPMULHW(words(by, by), v, p)
		return p
	}
	VPSUBW(x[3], x[1], c)
	VPADDW(high(x[1], -30068), c, c)
	VPSUBW(high(x[3], 20091), c, c)
	VPADDW(x[3], x[1], e)
	VPADDW(high(x[1], 20091), e, e)
	VPADDW(high(x[3], -30068), e, e)
	y := []reg.VecVirtual{same(), same(), same(), same()}
	VPADDW(e, a, y[0])
	VPADDW(c, b, y[1])
	VPSUBW(c, b, y[2])
	VPSUBW(e, a, y[3])
	return y
}

// turned transposes 4×4 words.
func turned(x []reg.VecVirtual) []reg.VecVirtual {
	low, high := XMM(), XMM()
	VPUNPCKLWD(x[1], x[0], low)
	VPUNPCKLWD(x[3], x[2], high)
	y := []reg.VecVirtual{XMM(), XMM(), XMM(), XMM()}
	VPUNPCKLDQ(high, low, y[0])
	VPUNPCKHDQ(high, low, y[2])
	VPSRLDQ(Imm(8), y[0], y[1])
	VPSRLDQ(Imm(8), y[2], y[3])
	return y
}

// turnedTwice transposes two times 4×4 words in each half of a register.
func turnedTwice(x []reg.VecVirtual) []reg.VecVirtual {
	la, lb, ha, hb := YMM(), YMM(), YMM(), YMM()
	VPUNPCKLWD(x[1], x[0], la)
	VPUNPCKLWD(x[3], x[2], lb)
	VPUNPCKHWD(x[1], x[0], ha)
	VPUNPCKHWD(x[3], x[2], hb)
	a, b, c, e := YMM(), YMM(), YMM(), YMM() // columns 0 and 1 of the first, 2 and 3, and of the second
	VPUNPCKLDQ(lb, la, a)
	VPUNPCKHDQ(lb, la, b)
	VPUNPCKLDQ(hb, ha, c)
	VPUNPCKHDQ(hb, ha, e)
	y := []reg.VecVirtual{YMM(), YMM(), YMM(), YMM()}
	VPUNPCKLQDQ(c, a, y[0])
	VPUNPCKHQDQ(c, a, y[1])
	VPUNPCKLQDQ(e, b, y[2])
	VPUNPCKHQDQ(e, b, y[3])
	return y
}

// trueMotion writes the prediction of an area from what is above, more what the left is more than the corner.
func trueMotion() {
	begin("trueMotion", "func(dst *byte, eights int)",
		"predicts a square of eights·8 pixels a side: what is above, more what the left pixel is more than the corner.")
	dst, eights := arg("dst"), arg("eights")
	rows := GP64()
	MOVQ(eights, rows)
	SHLQ(Imm(3), rows)
	above, corner := YMM(), YMM()
	VPMOVZXBW(at(dst, -webpStride), above)
	left := GP32()
	row := func() reg.VecVirtual {
		v := YMM()
		MOVBLZX(at(dst, -1), left)
		VMOVD(left, v.AsX())
		VPBROADCASTW(v.AsX(), v)
		VPADDW(above, v, v)
		return v
	}
	MOVBLZX(at(dst, -webpStride-1), left)
	VMOVD(left, corner.AsX())
	VPBROADCASTW(corner.AsX(), corner)
	VPSUBW(corner, above, above)
	CMPQ(eights, Imm(2))
	JE(LabelRef("wide"))
	loop("narrowRow", rows, func() {
		v := row().AsX()
		VPACKUSWB(v, v, v)
		VMOVQ(v, at(dst, 0))
		ADDQ(Imm(webpStride), dst)
	})
	end()
	Label("wide")
	loop("wideRow", rows, func() {
		v := row()
		VPACKUSWB(v, v, v)
		VPERMQ(Imm(0x08), v, v)
		VMOVDQU(v.AsX(), at(dst, 0))
		ADDQ(Imm(webpStride), dst)
	})
	end()
}

// yuv32 writes the conversion to RGB with smooth chroma.
func yuv32() {
	begin("yuv32", "func(dst, y, u, uf, v, vf *byte, n int)",
		"turns n·32 pixels of a row into RGB; chroma begins a sample before it, u and v are nearer than uf and vf.")
	dst, y, n := arg("dst"), arg("y"), arg("n")
	u, uf, v, vf := arg("u"), arg("uf"), arg("v"), arg("vf")
	loop("next32", n, func() {
		us, vs := chroma32(u, uf), chroma32(v, vf)
		l := YMM()
		VMOVDQU(at(y, 0), l)
		zero := YMM()
		VPXOR(zero, zero, zero)
		var r, g, b [2]reg.VecVirtual
		for i, unpack := range []func(Op, Op, Op){
			func(a, b, c Op) { VPUNPCKLBW(a, b, c) }, func(a, b, c Op) { VPUNPCKHBW(a, b, c) }} {
			r[i], g[i], b[i] = rgb16(half(unpack, l, zero), half(unpack, us, zero), half(unpack, vs, zero))
		}
		for _, c := range [][2]reg.VecVirtual{r, g, b} {
			VPACKUSWB(c[1], c[0], c[0])
		}
		interleave(dst, r[0].AsX(), g[0].AsX(), b[0].AsX())
		for _, c := range [][2]reg.VecVirtual{r, g, b} {
			VEXTRACTI128(Imm(1), c[0], c[0].AsX())
		}
		ADDQ(Imm(48), dst)
		interleave(dst, r[0].AsX(), g[0].AsX(), b[0].AsX())
		ADDQ(Imm(48), dst)
		for _, p := range []reg.GPVirtual{u, uf, v, vf} {
			ADDQ(Imm(16), p)
		}
		ADDQ(Imm(32), y)
	})
	end()
}

// half spreads half of the bytes to the upper halves of words.
func half(unpack func(a, b, c Op), v, zero reg.VecVirtual) reg.VecVirtual {
	w := YMM()
	unpack(v, zero, w)
	return w
}

// rgb16 converts 16 pixels, in libwebp's fixed point of 14 bits.
func rgb16(y, u, v reg.VecVirtual) (r, g, b reg.VecVirtual) {
	product := func(x reg.VecVirtual, by int) reg.VecVirtual {
		p := YMM()
		VPMULHUW(words(by, by), x, p)
		return p
	}
	l := product(y, 19077)
	r = product(v, 26149)
	VPADDW(l, r, r)
	VPSUBW(words(14234, 14234), r, r)
	VPSRAW(Imm(6), r, r)
	g = YMM()
	VPADDW(words(8708, 8708), l, g)
	VPSUBW(product(u, 6419), g, g)
	VPSUBW(product(v, 13320), g, g)
	VPSRAW(Imm(6), g, g)
	b = product(u, 33050)
	VPADDUSW(l, b, b)
	VPSUBUSW(words(17685, 17685), b, b)
	VPSRLW(Imm(6), b, b)
	return r, g, b
}

// chroma32 doubles 16 samples of the row that begins behind near[0], weighed with those of far.
func chroma32(near, far reg.GPVirtual) reg.VecVirtual {
	load := func(p reg.GPVirtual, disp int) reg.VecVirtual {
		v := YMM()
		VPMOVZXBW(at(p, disp), v)
		return v
	}
	n, c := load(near, 1), load(far, 1)
	t := YMM() // n + 3c + 8
	VPADDW(c, c, t)
	VPADDW(c, t, t)
	VPADDW(n, t, t)
	VPADDW(words(8, 8), t, t)
	side := func(disp int) reg.VecVirtual {
		s, a := load(near, disp), load(far, disp)
		VPADDW(s, a, a)
		VPADDW(s, s, s)
		VPADDW(s, a, a)
		VPADDW(t, a, a)
		VPSRLW(Imm(3), a, a)
		VPADDW(n, a, a)
		VPSRLW(Imm(1), a, a)
		return a
	}
	even, odd := side(0), side(2)
	VPSLLW(Imm(8), odd, odd)
	VPOR(odd, even, even)
	return even
}
