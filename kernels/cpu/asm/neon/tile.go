package main

// Tiles are 6 rows by 16 columns, 24 registers of sums, as those of AVX2 are: the same order of sums, each product added with
// one rounding, and so the same bits.
const (
	tileRows = 6
	tileCols = 4 // vectors
)

const tileArgs = "a []float32, aStep, aNext int, b []float32, bStep int, c []float32, ldc, cNext int, k, n, acc int"

func (e *emitter) products() {
	e.tile("tileN", false)
	e.tile("tileRowsN", true)
	e.rowTimes()
	e.peak()
}

// tile writes a micro-kernel. R0 is a, R1 b, R2 c, R3 steps of a in bytes, R4 those of b, R5 ldc, R6 k, R7 n.
func (e *emitter) tile(name string, rows bool) {
	f := e.begin(name, tileArgs, "", "multiplies a row of tiles, see isa.")
	e.pointer(f, "a", "R0")
	e.pointer(f, "c", "R2")
	e.bytes(f, "aStep", "R3")
	e.bytes(f, "bStep", "R4")
	e.bytes(f, "ldc", "R5")
	e.pointer(f, "n", "R7")
	e.bytes(f, "aNext", "R19")
	e.bytes(f, "cNext", "R20")
	next, done := e.label(), e.label()
	e.at(next)
	e.line("CBZ R7, %s", done)
	e.pointer(f, "b", "R1")
	e.pointer(f, "k", "R6")
	var acc [tileRows][tileCols]vec
	for i := range acc {
		for j := range acc[i] {
			acc[i][j] = e.reg()
			e.clear(acc[i][j])
		}
	}
	if rows {
		e.byRows(acc)
	} else {
		e.byColumns(acc)
	}
	e.storeTile(f, acc)
	e.next = 0
	e.line("ADD R19, R0")
	e.line("ADD R20, R2")
	e.line("SUB $1, R7")
	e.line("B %s", next)
	e.at(done)
	e.end()
}

// byColumns is the loop over k for an a that is packed: six numbers a step.
func (e *emitter) byColumns(acc [tileRows][tileCols]vec) {
	b := [tileCols]vec{e.reg(), e.reg(), e.reg(), e.reg()}
	a0, a1 := e.reg(), e.reg()
	e.line("MOVD R0, R10")
	e.line("ADD $16, R0, R11")
	step := func() {
		e.line("VLD1.P (R1)(R4), %s", lanesOf(b[0], 4))
		e.line("VLD1.P (R10)(R3), [V%d.S4]", a0)
		e.line("VLD1.P (R11)(R3), [V%d.S2]", a1)
		for i := range acc {
			for j := range acc[i] {
				if i < 4 {
					e.lane(fmla, acc[i][j], b[j], a0, i)
				} else {
					e.lane(fmla, acc[i][j], b[j], a1, i-4)
				}
			}
		}
	}
	e.unrolled(step, step)
}

// byRows is that for an a that lies by rows: four numbers of each row at a time, of which there are six pointers. Panels of b
// are read by halves, so that all fits into 32 registers.
func (e *emitter) byRows(acc [tileRows][tileCols]vec) {
	b := [2]vec{e.reg(), e.reg()}
	var a [tileRows]vec
	row := [tileRows]string{"R10", "R11", "R12", "R13", "R14", "R15"}
	for i := range a {
		a[i] = e.reg()
		if i == 0 {
			e.line("MOVD R0, R10")
		} else {
			e.line("ADD R3, %s, %s", row[i-1], row[i])
		}
	}
	e.line("ADD $32, R1, R16")
	step := func(u int) {
		for h := range 2 {
			e.line("VLD1.P (%s)(R4), %s", []string{"R1", "R16"}[h], lanesOf(b[0], 2))
			for i := range acc {
				for j := range b {
					e.lane(fmla, acc[i][2*h+j], b[j], a[i], u)
				}
			}
		}
	}
	e.unrolled4(func() {
		for i := range a {
			e.line("VLD1.P 16(%s), [V%d.S4]", row[i], a[i])
		}
		for u := range 4 {
			step(u)
		}
	}, func() {
		for i := range a {
			e.line("FMOVS.P 4(%s), F%d", row[i], a[i])
		}
		step(0)
	})
}

// unrolled runs four steps a turn, and then those that are left.
func (e *emitter) unrolled(step, single func()) {
	e.unrolled4(func() {
		for range 4 {
			step()
		}
	}, single)
}

// unrolled4 runs four of R6 steps at a time, and then single ones.
func (e *emitter) unrolled4(four, single func()) {
	main, rest, one, done := e.label(), e.label(), e.label(), e.label()
	e.line("LSR $2, R6, R8")
	e.line("CBZ R8, %s", rest)
	e.at(main)
	four()
	e.line("SUB $1, R8")
	e.line("CBNZ R8, %s", main)
	e.at(rest)
	e.line("ANDS $3, R6")
	e.line("BEQ %s", done)
	e.at(one)
	single()
	e.line("SUB $1, R6")
	e.line("CBNZ R6, %s", one)
	e.at(done)
}

// storeTile writes the tile, or adds it to c.
func (e *emitter) storeTile(f function, acc [tileRows][tileCols]vec) {
	set, done := e.label(), e.label()
	e.pointer(f, "acc", "R9")
	e.line("MOVD R2, R10")
	e.line("CBZ R9, %s", set)
	first := acc[0][0]
	for i := range acc {
		e.line("VLD1 (R10), %s", lanesOf(28, 4)) // what b was in
		for j := range acc[i] {
			e.is(fadd, acc[i][j], acc[i][j], vec(28+j))
		}
		e.line("VST1 %s, (R10)", lanesOf(first+vec(4*i), 4))
		e.line("ADD R5, R10")
	}
	e.line("B %s", done)
	e.at(set)
	for i := range acc {
		e.line("VST1 %s, (R10)", lanesOf(first+vec(4*i), 4))
		e.line("ADD R5, R10")
	}
	e.at(done)
}

// rowTimes writes rowTimes: four rows of w at a time, turned, so that sums go on one product after the other.
func (e *emitter) rowTimes() {
	f := e.begin("rowTimesN", "c, x, w []float32, ld, blocks, far, farRow, farBlock int", "", "adds a row times rows, see isa.")
	e.pointer(f, "c", "R0")
	e.pointer(f, "x", "R1")
	e.pointer(f, "w", "R10")
	e.bytes(f, "ld", "R3")
	e.pointer(f, "blocks", "R6")
	e.line("ADD R3, R10, R11")
	e.line("ADD R3, R11, R12")
	e.line("ADD R3, R12, R13")
	sum, x := e.reg(), e.reg()
	rows := [4]vec{e.reg(), e.reg(), e.reg(), e.reg()}
	cols := [4]vec{e.reg(), e.reg(), e.reg(), e.reg()}
	e.line("VLD1 (R0), [V%d.S4]", sum)
	loop, done := e.label(), e.label()
	e.line("CBZ R6, %s", done)
	e.at(loop)
	e.line("VLD1.P 16(R1), [V%d.S4]", x)
	for i, r := range []string{"R10", "R11", "R12", "R13"} {
		e.line("VLD1.P 16(%s), [V%d.S4]", r, rows[i])
	}
	e.turn(rows, cols)
	for p := range 4 {
		e.lane(fmla, sum, cols[p], x, p)
	}
	e.line("SUB $1, R6")
	e.line("CBNZ R6, %s", loop)
	e.at(done)
	e.line("VST1 [V%d.S4], (R0)", sum)
	e.end()
}

// turn transposes four registers into four others; the first are spent.
func (e *emitter) turn(r, d [4]vec) {
	e.is(trn1, d[0], r[0], r[1])
	e.is(trn2, d[1], r[0], r[1])
	e.is(trn1, d[2], r[2], r[3])
	e.is(trn2, d[3], r[2], r[3])
	e.is(trn1d, r[0], d[0], d[2])
	e.is(trn1d, r[1], d[1], d[3])
	e.is(trn2d, r[2], d[0], d[2])
	e.is(trn2d, r[3], d[1], d[3])
	for i := range r {
		e.copy(d[i], r[i])
	}
}

// peak writes the yardstick: 12 chains of multiply-adds.
func (e *emitter) peak() {
	f := e.begin("peakN", "n int, x []float32", "", "keeps the multipliers busy, see isa.")
	e.pointer(f, "n", "R6")
	e.pointer(f, "x", "R0")
	e.next = 12
	x := [4]vec{e.reg(), e.reg(), e.reg(), e.reg()}
	e.line("VLD1 (R0), %s", lanesOf(x[0], 4))
	for i := range 12 {
		e.clear(vec(i))
	}
	loop, done := e.label(), e.label()
	e.line("CBZ R6, %s", done)
	e.at(loop)
	for i := range 12 {
		e.is(fmla, vec(i), x[i%2], x[2+i%2])
	}
	e.line("SUB $1, R6")
	e.line("CBNZ R6, %s", loop)
	e.at(done)
	for i := 1; i < 12; i++ {
		e.is(fadd, 0, 0, vec(i))
	}
	e.line("VST1 [V0.S4], (R0)")
	e.end()
}
