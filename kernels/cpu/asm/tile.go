package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const tileArgs = "(a []float32, aStep, aNext int, b []float32, bStep int, c []float32, ldc, cNext int, k, n, acc int)"

// tiles writes the micro-kernels: 12x32 with AVX-512, 6x16 with AVX2, each a row of accumulators by two vectors.
func (e *emitter) tiles() {
	e.tile("tile", false, 2)
	e.tile("tileRows", true, 2)
	if e.wide {
		e.tile("narrowRows", true, 1)
	}
	for rows := 2; rows <= e.tileHeight(); rows += 2 {
		e.few(rows)
	}
	for _, l := range lows {
		e.low(l, 1)
		for rows := 2; rows <= e.tileHeight(); rows += 2 {
			e.low(l, rows)
		}
	}
}

// tileHeight is the rows of the whole tile.
func (e *emitter) tileHeight() int {
	if e.wide {
		return 12
	}
	return 6
}

// few writes a micro-kernel of few rows for products whose right side comes from memory: while it computes,
// it asks for a part of the panel that follows.
func (e *emitter) few(mr int) {
	e.begin(fmt.Sprintf("few%d", mr), "func(a []float32, aStep int, b []float32, bStep int, c []float32, "+
		"ldc, k, acc, far, farStep int)", fmt.Sprintf("multiplies one tile of %d rows, see isa.", mr))
	aCur, cCur := base("a"), base("c")
	aStep, bStep := bytesOf("aStep"), bytesOf("bStep")
	acc := e.accumulators(mr, 2, cCur)
	t := &tileLoop{e: e, mr: mr, acc: acc, aStep: aStep, b: base("b"), bStep: bStep, far: bytesOf("far"),
		farStep: count4("farStep")}
	ADDQ(t.b, t.far)
	t.start(aCur)
	t.run()
	e.storeTile(acc, cCur)
	e.end()
}

// tile writes one micro-kernel of so many vectors of columns; rows tells whether a is read along rows.
func (e *emitter) tile(name string, rows bool, vectors int) {
	mr := e.tileHeight()
	e.begin(name, "func"+tileArgs, "multiplies a row of tiles, see isa.")
	n, aCur, cCur := count4("n"), base("a"), base("c")
	aStep, bStep := bytesOf("aStep"), bytesOf("bStep")
	next, finish := e.label(), e.label()
	Label(next)
	TESTQ(n, n)
	JZ(LabelRef(finish))
	acc := e.accumulators(mr, vectors, cCur)
	t := &tileLoop{e: e, mr: mr, rows: rows, acc: acc, aStep: aStep, b: base("b"), bStep: bStep}
	t.start(aCur)
	t.run()
	e.storeTile(acc, cCur)
	ADDQ(bytesOf("aNext"), aCur)
	ADDQ(bytesOf("cNext"), cCur)
	DECQ(n)
	JMP(LabelRef(next))
	Label(finish)
	e.end()
}

// count4 reads an integer parameter, bytesOf one that counts float32s.
func count4(name string) reg.GPVirtual { return load(Param(name)) }

// bytesOf loads a parameter that counts floats and turns it into bytes.
func bytesOf(name string) reg.GPVirtual {
	r := load(Param(name))
	SHLQ(Imm(2), r)
	return r
}

// accumulators clears the tile's registers and asks for its lines of c.
func (e *emitter) accumulators(mr, vectors int, c reg.GPVirtual) [][]vec {
	acc := make([][]vec, mr)
	p, ldc := GP64(), bytesOf("ldc")
	MOVQ(c, p)
	for i := range acc {
		for range vectors {
			acc[i] = append(acc[i], e.zero())
		}
		PREFETCHT0(Mem{Base: p})
		PREFETCHT0(Mem{Base: p, Disp: vectors*e.bytes() - 4})
		ADDQ(ldc, p)
	}
	return acc
}

// tileLoop is the loop over k.
type tileLoop struct {
	e          *emitter
	mr         int
	rows       bool
	acc        [][]vec
	aStep      reg.GPVirtual
	a          []reg.GPVirtual // rows: one pointer for three rows
	b, bStep   reg.GPVirtual
	bv         []vec
	farA, farB reg.GPVirtual // 64 steps, how far ahead operands are asked for

	far, farStep reg.GPVirtual // of few rows: what is asked for beside them, and bytes that it moves on a step
}

// start makes the pointers into a. One pointer reaches three rows by its addressing mode, so a tile
// of rows needs one per three.
func (t *tileLoop) start(aCur reg.GPVirtual) {
	groups := 1
	if t.rows {
		groups = t.mr / 3
	}
	for g := range groups {
		p := GP64()
		if g == 0 {
			MOVQ(aCur, p)
		} else { // three rows further
			LEAQ(Mem{Base: t.a[g-1], Index: t.aStep, Scale: 2}, p)
			ADDQ(t.aStep, p)
		}
		t.a = append(t.a, p)
	}
}

// run emits the loop over k, four steps at a time, then the one to three that are left.
func (t *tileLoop) run() {
	e, k, k4 := t.e, count4("k"), GP64()
	for range t.acc[0] {
		t.bv = append(t.bv, e.vec())
	}
	main, rest, single, done := e.label(), e.label(), e.label(), e.label()
	const unroll = 4
	t.farA, t.farB = GP64(), GP64()
	MOVQ(t.aStep, t.farA)
	SHLQ(Imm(6), t.farA)
	MOVQ(t.bStep, t.farB)
	SHLQ(Imm(6), t.farB)
	MOVQ(k, k4)
	SHRQ(Imm(2), k4)
	JZ(LabelRef(rest))
	Label(main)
	for u := range unroll {
		t.step(u)
	}
	t.advance(unroll)
	DECQ(k4)
	JNZ(LabelRef(main))
	Label(rest)
	ANDQ(Imm(unroll-1), k)
	JZ(LabelRef(done))
	Label(single)
	t.step(0)
	t.advance(1)
	DECQ(k)
	JNZ(LabelRef(single))
	Label(done)
}

// step adds one outer product.
func (t *tileLoop) step(u int) {
	e := t.e
	for j := range t.bv {
		VMOVUPS(Mem{Base: t.b, Disp: j * e.bytes()}, t.bv[j])
	}
	PREFETCHT0(Mem{Base: t.b, Index: t.farB, Scale: 1})
	if e.wide && len(t.bv) > 1 {
		PREFETCHT0(Mem{Base: t.b, Index: t.farB, Scale: 1, Disp: 64})
	}
	if t.far != nil {
		PREFETCHT1(Mem{Base: t.far})
		PREFETCHT1(Mem{Base: t.far, Disp: 64})
		ADDQ(t.farStep, t.far)
	}
	ADDQ(t.bStep, t.b)
	if !t.rows && t.far == nil {
		PREFETCHT0(Mem{Base: t.a[0], Index: t.farA, Scale: 1})
	}
	if len(t.bv) == 1 && u == 0 { // so little is done with each line of rows that it is asked for
		for i := range t.mr {
			m := t.element(i, 0)
			m.Disp += narrowAhead
			PREFETCHT0(m)
		}
	}
	for i := range t.mr {
		x := e.vec()
		VBROADCASTSS(t.element(i, u), x)
		for j := range t.bv {
			VFMADD231PS(x, t.bv[j], t.acc[i][j])
		}
	}
	if !t.rows {
		ADDQ(t.aStep, t.a[0])
	}
}

// element is the address of row i of a, at step u of the unrolled loop.
func (t *tileLoop) element(i, u int) Mem {
	if !t.rows {
		return Mem{Base: t.a[0], Disp: 4 * i}
	}
	m := Mem{Base: t.a[i/3], Disp: 4 * u}
	if i%3 > 0 {
		m.Index, m.Scale = t.aStep, uint8(i%3)
	}
	return m
}

// advance moves the pointers of rows on by n steps of four bytes.
func (t *tileLoop) advance(n int) {
	if t.rows {
		for _, p := range t.a {
			ADDQ(Imm(uint64(4*n)), p)
		}
	}
}

// narrowAhead is how far ahead rows are asked for in a tile of one vector of columns, in bytes.
const narrowAhead = 256

// storeTile writes the tile, or adds it to c.
func (e *emitter) storeTile(acc [][]vec, cCur reg.GPVirtual) {
	set, done := e.label(), e.label()
	p, ldc, add := GP64(), bytesOf("ldc"), count4("acc")
	MOVQ(cCur, p)
	TESTQ(add, add)
	JZ(LabelRef(set))
	for _, adding := range []bool{true, false} {
		for i := range acc {
			for j, v := range acc[i] {
				m := Mem{Base: p, Disp: j * e.bytes()}
				if adding {
					VADDPS(m, v, v)
				}
				VMOVUPS(v, m)
			}
			ADDQ(ldc, p)
		}
		if adding {
			JMP(LabelRef(done))
			Label(set)
		}
	}
	Label(done)
}

// copyRows writes copyRows: n rows of 16 float32s from src, ld apart, to dst one after the other.
func (e *emitter) copyRows() {
	e.beginMove("copyRows", "func(dst, src []float32, ld, n int)", "copies rows of 16 and closes them up.")
	dst, src, ld, n := base("dst"), base("src"), bytesOf("ld"), count4("n")
	next, finish := e.label(), e.label()
	Label(next)
	TESTQ(n, n)
	JZ(LabelRef(finish))
	for off := 0; off < 64; off += e.bytes() {
		e.store(e.load(Mem{Base: src, Disp: off}, false), Mem{Base: dst, Disp: off}, false)
	}
	ADDQ(ld, src)
	ADDQ(Imm(64), dst)
	DECQ(n)
	JMP(LabelRef(next))
	Label(finish)
	e.end()
}

// rowsAhead is how many rows ahead spread asks for what it reads: rows lie on pages of their own, which the
// processor does not foresee.
const rowsAhead = 8

// spread cuts rows into panels: whole vectors and then the rest of the width, which is stored as a whole
// vector that the next row overwrites in part.
func (e *emitter) spread() {
	e.beginMove("spread", "func(dst []float32, next, width, panels int, src []float32, ld, rows int)",
		"cuts rows into panels, see isa.")
	dst, src, ld, rows := base("dst"), base("src"), bytesOf("ld"), count4("rows")
	full, rest, step := count4("width"), count4("width"), bytesOf("next")
	SHRQ(Imm(map[bool]uint64{true: 4, false: 3}[e.wide]), full)
	ANDQ(Imm(uint64(e.lanes()-1)), rest)
	e.tail(rest)
	row, finish := e.label(), e.label()
	Label(row)
	TESTQ(rows, rows)
	JZ(LabelRef(finish))
	s, d, panels := GP64(), GP64(), count4("panels")
	MOVQ(src, s)
	MOVQ(dst, d)
	panel, done := e.label(), e.label()
	Label(panel)
	TESTQ(panels, panels)
	JZ(LabelRef(done))
	t, n := GP64(), GP64()
	MOVQ(d, t)
	MOVQ(full, n)
	vector, part, after := e.label(), e.label(), e.label()
	Label(vector)
	TESTQ(n, n)
	JZ(LabelRef(part))
	PREFETCHT0(Mem{Base: s, Index: ld, Scale: rowsAhead})
	e.store(e.load(Mem{Base: s}, false), Mem{Base: t}, false)
	ADDQ(U32(uint32(e.bytes())), s)
	ADDQ(U32(uint32(e.bytes())), t)
	DECQ(n)
	JMP(LabelRef(vector))
	Label(part)
	TESTQ(rest, rest)
	JZ(LabelRef(after))
	PREFETCHT0(Mem{Base: s, Index: ld, Scale: rowsAhead})
	e.store(e.load(Mem{Base: s}, true), Mem{Base: t}, false)
	LEAQ(Mem{Base: s, Index: rest, Scale: 4}, s)
	Label(after)
	ADDQ(step, d)
	DECQ(panels)
	JMP(LabelRef(panel))
	Label(done)
	ADDQ(ld, src)
	width := bytesOf("width")
	ADDQ(width, dst)
	DECQ(rows)
	JMP(LabelRef(row))
	Label(finish)
	e.end()
}
