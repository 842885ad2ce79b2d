package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// limits are in memory, 16 times each: of inner edges, of outer edges, beside edges, and above which only
// the nearest pixels change.
type limits struct{ edge, outer, inner, high Mem }

// filterMacroblock writes the loop filter of a macroblock.
func filterMacroblock() {
	begin("filterMacroblock", "func(y, u, v *byte, strideY, strideC, edges, limit, inner, high int)",
		"smooths a macroblock's edges: bits of edges are the left one, those in it, and the upper one.")
	scratch := AllocLocal(24 * 16)
	l := limits{AllocLocal(16), AllocLocal(16), AllocLocal(16), AllocLocal(16)}
	for _, p := range []struct {
		name string
		more uint64
		to   Mem
	}{{"limit", 0, l.edge}, {"limit", 4, l.outer}, {"inner", 0, l.inner}, {"high", 0, l.high}} {
		v, x := arg(p.name), XMM()
		ADDQ(Imm(p.more), v)
		VMOVD(v.As32(), x)
		VPBROADCASTB(x, x)
		VMOVDQU(x, p.to)
	}
	edges := arg("edges")
	TESTQ(U32(3), edges)
	JZ(LabelRef("columnsDone"))
	columnsOf(luma("y"), 3, scratch, l, edges, "luma")
	columnsOf(chroma(), 2, scratch, l, edges, "chroma")
	Label("columnsDone")
	TESTQ(U32(4), edges)
	JZ(LabelRef("upperDone"))
	luma("y").edge(-4, l, true)
	chroma().edge(-4, l, true)
	Label("upperDone")
	TESTQ(U32(2), edges)
	JZ(LabelRef("innerDone"))
	for _, first := range []int{0, 4, 8} {
		luma("y").edge(first, l, false)
	}
	chroma().edge(0, l, false)
	Label("innerDone")
	RET()
}

// area is one or two planes of which 16 pixels are taken at once.
type area struct {
	planes []reg.GPVirtual
	stride reg.GPVirtual
}

func luma(name string) area { return area{[]reg.GPVirtual{arg(name)}, arg("strideY")} }

func chroma() area { return area{[]reg.GPVirtual{arg("u"), arg("v")}, arg("strideC")} }

// rows are the addresses of some rows from the first on, by plane.
func (a area) rows(first, n int) [][]Mem {
	out := make([][]Mem, len(a.planes))
	for i, base := range a.planes {
		p, off := GP64(), GP64()
		MOVQ(a.stride, off)
		if first != 0 {
			IMUL3Q(I32(int32(first)), a.stride, off)
			LEAQ(Mem{Base: base, Index: off, Scale: 1}, p)
		} else {
			MOVQ(base, p)
		}
		three := GP64()
		LEAQ(Mem{Base: a.stride, Index: a.stride, Scale: 2}, three)
		for k := 0; k < n; k += 4 {
			if k > 0 {
				q := GP64()
				LEAQ(Mem{Base: p, Index: a.stride, Scale: 4}, q)
				p = q
			}
			out[i] = append(out[i], Mem{Base: p}, Mem{Base: p, Index: a.stride, Scale: 1},
				Mem{Base: p, Index: a.stride, Scale: 2}, Mem{Base: p, Index: three, Scale: 1})
		}
	}
	return out
}

// edge smooths a horizontal edge; first is the first of its eight rows.
func (a area) edge(first int, l limits, outer bool) {
	rows := a.rows(first, 8)
	smooth(func(i int) reg.VecVirtual {
		v := XMM()
		if len(rows) == 1 {
			VMOVDQU(rows[0][i], v)
		} else {
			VMOVQ(rows[0][i], v)
			VMOVHPS(rows[1][i], v, v)
		}
		return v
	}, func(i int, v reg.VecVirtual) {
		if len(rows) == 1 {
			VMOVDQU(v, rows[0][i])
		} else {
			VMOVQ(v, rows[0][i])
			VMOVHPS(v, rows[1][i])
		}
	}, l, outer)
}

// columnsOf smooths vertical edges: the pixels are turned by windows of eight columns, the first of which
// begins four columns before the area.
func columnsOf(a area, windows int, scratch Mem, l limits, edges reg.GPVirtual, name string) {
	only := func(bit uint32, label string, f func()) {
		TESTQ(U32(bit), edges)
		JZ(LabelRef(name + label))
		f()
		Label(name + label)
	}
	a.turn(-4, scratch)
	only(2, "Turned", func() {
		for w := 1; w < windows; w++ {
			a.turn(8*w-4, scratch.Offset(128*w))
		}
	})
	at := func(first int) (func(i int) reg.VecVirtual, func(i int, v reg.VecVirtual)) {
		return func(i int) reg.VecVirtual {
				v := XMM()
				VMOVDQU(scratch.Offset(16*(first+i)), v)
				return v
			}, func(i int, v reg.VecVirtual) {
				VMOVDQU(v, scratch.Offset(16*(first+i)))
			}
	}
	only(1, "Left", func() {
		load, store := at(0)
		smooth(load, store, l, true)
	})
	only(2, "Inner", func() {
		for w := 0; w < windows-1; w++ {
			load, store := at(4 + 8*w)
			smooth(load, store, l, false)
			if 8+8*w+8 < 8*windows-4+1 {
				load, store = at(8 + 8*w)
				smooth(load, store, l, false)
			}
		}
	})
	a.turnBack(-4, 8, scratch)
	only(2, "Back", func() {
		for w := 1; w < windows; w++ {
			a.turnBack(8*w-4, map[bool]int{true: 4, false: 8}[w == windows-1], scratch.Offset(128*w))
		}
	})
}

// sixteen are the addresses of the 16 rows at a column.
func (a area) sixteen(column int) (out []Mem) {
	for _, rows := range a.rows(0, 16/len(a.planes)) {
		for _, m := range rows {
			m.Disp += column
			out = append(out, m)
		}
	}
	return out
}

// turn writes eight columns of 16 rows to memory as rows.
func (a area) turn(column int, to Mem) {
	from := a.sixteen(column)
	x := make([]reg.VecVirtual, 8)
	for i := range x {
		x[i] = XMM()
		t := XMM()
		VMOVQ(from[i], x[i])
		VMOVQ(from[i+8], t)
		VPUNPCKLBW(t, x[i], x[i]) // rows i and i+8 in turn
	}
	for i, v := range turned8(x) {
		VMOVDQU(v, to.Offset(16*i))
	}
}

// turned8 does three rounds of putting bytes of register i and i+4, 2 or 1 in turn, which with one round
// before them transposes 16×8 bytes.
func turned8(x []reg.VecVirtual) []reg.VecVirtual {
	for range 3 {
		y := make([]reg.VecVirtual, 8)
		for i := range 4 {
			y[2*i], y[2*i+1] = XMM(), XMM()
			VPUNPCKLBW(x[i+4], x[i], y[2*i])
			VPUNPCKHBW(x[i+4], x[i], y[2*i+1])
		}
		x = y
	}
	return x
}

// turnBack writes rows of memory to n columns of 16 rows.
func (a area) turnBack(column, n int, from Mem) {
	x := make([]reg.VecVirtual, 8)
	for i := range x {
		x[i] = XMM()
		VMOVDQU(from.Offset(16*i), x[i])
	}
	x = turned8(x) // two rows each
	to := a.sixteen(column)
	for i, v := range x {
		if n == 8 {
			VMOVQ(v, to[2*i])
			VMOVHPS(v, to[2*i+1])
			continue
		}
		VMOVD(v, to[2*i])
		VPEXTRD(Imm(2), v, to[2*i+1])
	}
}

// smooth filters an edge between the fourth and the fifth of eight rows of 16 pixels.
func smooth(load func(i int) reg.VecVirtual, store func(i int, v reg.VecVirtual), l limits, outer bool) {
	apart := func(a, b reg.VecVirtual) reg.VecVirtual {
		s, t := XMM(), XMM()
		VPSUBUSB(a, b, s)
		VPSUBUSB(b, a, t)
		VPOR(t, s, s)
		return s
	}
	p2 := load(1)
	most := apart(load(0), p2)
	p1 := load(2)
	VPMAXUB(apart(p2, p1), most, most)
	p0 := load(3)
	near := apart(p1, p0)
	q0, q1 := load(4), load(5)
	VPMAXUB(apart(q1, q0), near, near)
	q2 := load(6)
	VPMAXUB(apart(q2, q1), most, most)
	VPMAXUB(apart(load(7), q2), most, most)
	VPMAXUB(near, most, most)
	zero := XMM()
	VPXOR(zero, zero, zero)
	VPSUBUSB(l.inner, most, most)
	across, far := apart(p0, q0), apart(p1, q1)
	VPADDUSB(across, across, across)
	VPSRLW(Imm(1), far, far)
	VPAND(octets(0x7f), far, far)
	VPADDUSB(far, across, across)
	limit := l.edge
	if outer {
		limit = l.outer
	}
	VPSUBUSB(limit, across, across)
	VPOR(across, most, most)
	VPCMPEQB(zero, most, most) // where the edge is smoothed
	VPSUBUSB(l.high, near, near)
	VPCMPEQB(zero, near, near) // where more than the nearest pixels change
	for _, v := range []reg.VecVirtual{p1, p0, q0, q1} {
		VPXOR(octets(0x80), v, v)
	}
	a, d := XMM(), XMM()
	VPSUBSB(q1, p1, a)
	if !outer {
		VPANDN(a, near, a)
	}
	VPSUBSB(p0, q0, d)
	for range 3 {
		VPADDSB(d, a, a)
	}
	VPAND(most, a, a)
	if outer {
		rest := XMM()
		VPAND(near, a, rest)
		VPANDN(a, near, a)
		nearest(p0, q0, a)
		for _, v := range []reg.VecVirtual{p2, q2} {
			VPXOR(octets(0x80), v, v)
		}
		smooth6(rest, []reg.VecVirtual{p2, p1, p0}, []reg.VecVirtual{q2, q1, q0})
		VPXOR(octets(0x80), p2, p2)
		VPXOR(octets(0x80), q2, q2)
		store(1, p2)
		store(6, q2)
	} else {
		by := nearest(p0, q0, a)
		VPXOR(octets(0x80), by, by)
		VPAVGB(octets(0x80), by, by)
		VPXOR(octets(0x80), by, by)
		VPAND(near, by, by)
		VPADDSB(by, p1, p1)
		VPSUBSB(by, q1, q1)
	}
	for i, v := range []reg.VecVirtual{p1, p0, q0, q1} {
		VPXOR(octets(0x80), v, v)
		store(2+i, v)
	}
}

func octets(v byte) Mem {
	return constant("octets_"+string("0123456789abcdef"[v>>4])+string("0123456789abcdef"[v&15]),
		func(int) byte { return v })
}

// nearest changes the two pixels at the edge and returns what the second was lowered by.
func nearest(p0, q0, a reg.VecVirtual) reg.VecVirtual {
	shifted := func(more byte) reg.VecVirtual {
		v := XMM()
		VPADDSB(octets(more), a, v)
		VPXOR(octets(0x80), v, v)
		VPSRLW(Imm(3), v, v)
		VPAND(octets(0x1f), v, v)
		VPSUBB(octets(0x10), v, v)
		return v
	}
	VPADDSB(shifted(3), p0, p0)
	by := shifted(4)
	VPSUBSB(by, q0, q0)
	return by
}

// smooth6 changes three pixels on each side, given from the outermost in.
func smooth6(a reg.VecVirtual, p, q []reg.VecVirtual) {
	nine, sum := YMM(), YMM()
	VPMOVSXBW(a, nine)
	VPMULLW(words(9, 9), nine, nine)
	VPADDW(words(63, 63), nine, sum)
	for i := range p {
		if i > 0 {
			VPADDW(nine, sum, sum)
		}
		v, upper := YMM(), XMM()
		VPSRAW(Imm(7), sum, v)
		VEXTRACTI128(Imm(1), v, upper)
		VPACKSSWB(upper, v.AsX(), v.AsX())
		VPADDSB(v.AsX(), p[i], p[i])
		VPSUBSB(v.AsX(), q[i], q[i])
	}
}
