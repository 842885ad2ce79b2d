package main

// moves writes transposition: columns of 16 rows, and of 6, four at a time.
func (e *emitter) moves() {
	for _, rows := range []int{16, 6} {
		name := map[int]string{16: "transpose16N", 6: "transpose6N"}[rows]
		f := e.begin(name, "dst []float32, step int, src []float32, ld, blocks int", "", "writes the columns of rows, 16 a block.")
		e.pointer(f, "dst", "R0")
		e.bytes(f, "step", "R3")
		e.pointer(f, "src", "R1")
		e.bytes(f, "ld", "R4")
		e.pointer(f, "blocks", "R8")
		e.line("LSL $2, R8")
		loop, done := e.label(), e.label()
		e.line("CBZ R8, %s", done)
		e.at(loop)
		e.line("MOVD R1, R10")
		if rows == 16 {
			e.columns16()
		} else {
			e.columns6()
		}
		e.line("ADD $16, R1")
		e.line("SUB $1, R8")
		e.line("CBNZ R8, %s", loop)
		e.at(done)
		e.end()
	}
}

// load reads four numbers of n rows.
func (e *emitter) load(to vec, n int) {
	for i := range n {
		e.line("VLD1 (R10), [V%d.S4]", int(to)+i)
		e.line("ADD R4, R10")
	}
}

func (e *emitter) columns16() {
	for g := range 4 { // of four rows each
		e.load(0, 4)
		e.is(trn1, 4, 0, 1)
		e.is(trn2, 5, 0, 1)
		e.is(trn1, 6, 2, 3)
		e.is(trn2, 7, 2, 3)
		for c, o := range []op{trn1d, trn1d, trn2d, trn2d} {
			e.is(o, vec(16+4*c+g), vec(4+c%2), vec(6+c%2))
		}
	}
	for c := range 4 {
		e.line("VST1 %s, (R0)", lanesOf(vec(16+4*c), 4))
		e.line("ADD R3, R0")
	}
}

func (e *emitter) columns6() {
	e.load(0, 4)
	e.load(8, 2)
	e.is(trn1, 4, 0, 1)
	e.is(trn2, 5, 0, 1)
	e.is(trn1, 6, 2, 3)
	e.is(trn2, 7, 2, 3)
	for c, o := range []op{trn1d, trn1d, trn2d, trn2d} {
		e.is(o, vec(16+c), vec(4+c%2), vec(6+c%2))
	}
	e.is(trn1, 10, 8, 9) // columns 0 and 2 of the last two rows
	e.is(trn2, 11, 8, 9) // columns 1 and 3
	for c := range 4 {
		e.line("ADD $16, R0, R11")
		e.line("VST1 [V%d.S4], (R0)", 16+c)
		e.line("VST1 V%d.D[%d], (R11)", 10+c%2, c/2)
		e.line("ADD R3, R0")
	}
}
