package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// lossless writes what takes the transforms of VP8L back.
func lossless() {
	for mode := range 14 {
		begin(fmt.Sprintf("predict%d", mode), "func(px, above *uint32, n int)",
			fmt.Sprintf("adds the prediction of mode %d to n pixels; above is the pixel above the first.", mode))
		p := predictor{mode, arg("px"), arg("above"), arg("n")}
		switch mode {
		case 0, 2, 3, 4, 8, 9:
			p.apart()
		default:
			p.inTurn()
		}
		end()
	}
	addGreen8()
	uncross8()
	rgb8()
	readLiterals()
}

type predictor struct {
	mode         int
	px, above, n reg.GPVirtual
}

// apart adds predictions that do not need the pixel to the left, eight at a time.
func (p predictor) apart() {
	name := fmt.Sprintf("apart%d", p.mode)
	step := func(bytes int, to func() reg.VecVirtual, load, store func(Op, Op)) {
		at := func(disp int) reg.VecVirtual {
			v := to()
			load(at(p.above, disp), v)
			return v
		}
		v, x := p.fromAbove(at), to()
		load(Mem{Base: p.px}, x)
		VPADDB(v, x, x)
		store(x, Mem{Base: p.px})
		ADDQ(Imm(uint64(bytes)), p.px)
		ADDQ(Imm(uint64(bytes)), p.above)
	}
	eights := GP64()
	MOVQ(p.n, eights)
	SHRQ(Imm(3), eights)
	ANDQ(Imm(7), p.n)
	loop(name+"Eight", eights, func() {
		step(32, func() reg.VecVirtual { return YMM() }, func(a, b Op) { VMOVDQU(a, b) },
			func(a, b Op) { VMOVDQU(a, b) })
	})
	loop(name+"One", p.n, func() {
		step(4, func() reg.VecVirtual { return XMM() }, func(a, b Op) { VMOVD(a, b) }, func(a, b Op) { VMOVD(a, b) })
	})
}

// fromAbove is a prediction from the row above; at loads from there.
func (p predictor) fromAbove(at func(int) reg.VecVirtual) reg.VecVirtual {
	switch p.mode {
	case 2:
		return at(0)
	case 3:
		return at(4)
	case 4:
		return at(-4)
	case 8:
		return means(at(-4), at(0))
	case 9:
		return means(at(0), at(4))
	}
	v := at(0)
	VPCMPEQD(v, v, v)
	VPSLLD(Imm(24), v, v)
	return v
}

// means are the means of bytes, rounded down.
func means(a, b reg.VecVirtual) reg.VecVirtual {
	odd, m := alike(a), alike(a)
	VPXOR(a, b, odd)
	VPAND(octets(1), odd, odd)
	VPAVGB(a, b, m)
	VPSUBB(odd, m, m)
	return m
}

// inTurn adds predictions one after another, as each needs the pixel before it.
func (p predictor) inTurn() {
	left := XMM()
	VMOVD(at(p.px, -4), left)
	load := func(disp int) reg.VecVirtual {
		v := XMM()
		VMOVD(at(p.above, disp), v)
		return v
	}
	loop(fmt.Sprintf("inTurn%d", p.mode), p.n, func() {
		x := XMM()
		VMOVD(at(p.px, 0), x)
		VPADDB(p.withLeft(left, load), x, left)
		VMOVD(left, at(p.px, 0))
		ADDQ(Imm(4), p.px)
		ADDQ(Imm(4), p.above)
	})
}

func (p predictor) withLeft(left reg.VecVirtual, above func(int) reg.VecVirtual) reg.VecVirtual {
	switch p.mode {
	case 5:
		return means(means(left, above(4)), above(0))
	case 6:
		return means(left, above(-4))
	case 7:
		return means(left, above(0))
	case 10:
		return means(means(left, above(-4)), means(above(0), above(4)))
	case 11:
		return nearer(left, above(0), above(-4))
	case 12, 13:
		return gradient(left, above(0), above(-4), p.mode == 13)
	}
	return left
}

// nearer is left where the sum of differences of corner and up is less than that of corner and left, else up.
func nearer(left, up, corner reg.VecVirtual) reg.VecVirtual {
	a, b := XMM(), XMM()
	VPSADBW(corner, up, a)
	VPSADBW(corner, left, b)
	VPCMPGTD(a, b, b)
	VPBROADCASTD(b, b)
	v := XMM()
	VPBLENDVB(b, left, up, v)
	return v
}

// gradient is left + up - corner, or the mean of the first two more half of what it is more than the corner.
func gradient(left, up, corner reg.VecVirtual, half bool) reg.VecVirtual {
	base := left
	if half {
		base = means(left, up)
	}
	v, c := XMM(), XMM()
	VPMOVZXBW(base, v)
	VPMOVZXBW(corner, c)
	more := XMM()
	if half {
		VPSUBW(c, v, more)
		negative := XMM() // halves are rounded towards 0
		VPSRLW(Imm(15), more, negative)
		VPADDW(negative, more, more)
		VPSRAW(Imm(1), more, more)
	} else {
		VPMOVZXBW(up, more)
		VPSUBW(c, more, more)
	}
	VPADDW(more, v, v)
	VPACKUSWB(v, v, v)
	return v
}

func addGreen8() {
	begin("addGreen8", "func(px *uint32, n int)", "adds green to red and blue of n·8 pixels.")
	px, n := arg("px"), arg("n")
	mask := fill(constant("greenTwice", func(i int) byte {
		if i%2 == 1 {
			return 0x80
		}
		return byte(i%16/4*4 + 1)
	}))
	loop("nextGreen", n, func() {
		v, g := YMM(), YMM()
		VMOVDQU(at(px, 0), v)
		VPSHUFB(mask, v, g)
		VPADDB(g, v, v)
		VMOVDQU(v, at(px, 0))
		ADDQ(Imm(32), px)
	})
	end()
}

func uncross8() {
	begin("uncross8", "func(px *uint32, n, tile int)",
		"adds to red and blue of n·8 pixels what green and red make likely by a tile's numbers.")
	px, n, tile := arg("px"), arg("n"), arg("tile")
	red, blue, t := GP32(), GP32(), GP32()
	MOVBLSX(tile.As8(), red)
	SHLL(Imm(16+3), red)
	SHRL(Imm(8), tile.As32())
	MOVBLSX(tile.As8(), t)
	SHLL(Imm(3), t)
	MOVWLZX(t.As16(), t)
	ORL(t, red)
	SHRL(Imm(8), tile.As32())
	MOVBLSX(tile.As8(), blue)
	SHLL(Imm(16+3), blue)
	byGreen, byRed, even := YMM(), YMM(), YMM()
	VMOVD(red, byGreen.AsX())
	VPBROADCASTD(byGreen.AsX(), byGreen)
	VMOVD(blue, byRed.AsX())
	VPBROADCASTD(byRed.AsX(), byRed)
	VPCMPEQW(even, even, even)
	VPSRLW(Imm(8), even, even)
	greens := fill(constant("greenHigh", func(i int) byte {
		if i%2 == 0 {
			return 0x80
		}
		return byte(i%16/4*4 + 1)
	}))
	loop("nextUncrossed", n, func() {
		v, g := YMM(), YMM()
		VMOVDQU(at(px, 0), v)
		VPSHUFB(greens, v, g)
		VPMULHW(byGreen, g, g)
		VPADDB(v, g, g)
		r := YMM()
		VPSLLW(Imm(8), g, r)
		VPMULHW(byRed, r, r)
		VPSRLD(Imm(16), r, r)
		VPADDB(r, g, g)
		VPAND(even, g, g)
		VPANDN(v, even, v)
		VPOR(g, v, v)
		VMOVDQU(v, at(px, 0))
		ADDQ(Imm(32), px)
	})
	end()
}

func rgb8() {
	pack("rgb8", "func(dst *byte, px *uint32, n int)", [3]int{2, 1, 0})
}

// pack writes the dropping of every pixel's fourth byte; order says where the other three are.
func pack(name, signature string, order [3]int) {
	begin(name, signature, "drops the alpha of n·8 pixels; 4 bytes behind the last are written.")
	dst, px, n := arg("dst"), arg("px"), arg("n")
	mask := fill(constant("dropAlpha", func(i int) byte {
		if i %= 16; i < 12 {
			return byte(i/3*4 + order[i%3])
		}
		return 0x80
	}))
	loop(name+"Next", n, func() {
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
