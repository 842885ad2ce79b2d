package main

import "fmt"

// AVX512_BF16 without tiles: the same blocks as amxBlocks, from the same packed operands, in vectors.

// evex encodes VDPBF16PS (EVEX.512.F3.0F38.W0 52) with register d accumulating, s as the first operand, and
// x and b extending the index and base or the register of the second.
func dpbf16(d, s, x, b int, broadcast bool) []byte {
	not := func(bit int) byte { return byte(1 - bit&1) }
	p0 := 0x02 | not(d>>3)<<7 | not(x)<<6 | not(b)<<5 | not(d>>4)<<4
	p2 := 0x40 | not(s>>4)<<3
	if broadcast {
		p2 |= 0x10
	}
	return []byte{0x62, p0, byte(0x06 | (15-s&15)<<3), p2, 0x52}
}

// vdpbf16psMem encodes d += s·(pair of bf16 at disp(base)(index*scale), the same for all lanes); index "" is none.
func vdpbf16psMem(d, s int, base, index string, scale, disp int) []byte {
	b := regNumber[base]
	i, x := 4, 0
	if index != "" {
		i, x = regNumber[index]&7, regNumber[index]>>3
	}
	log := map[int]int{1: 0, 2: 1, 4: 2, 8: 3}[scale]
	code := dpbf16(d, s, x, b>>3, true)
	if index == "" && b&7 != 4 {
		return append(code, byte(0x40|(d&7)<<3|b&7), byte(disp/4)) // displacements count pairs
	}
	return append(code, byte(0x40|(d&7)<<3|4), byte(log<<6|i<<3|b&7), byte(disp/4))
}

// vdpbf16ps encodes d += s·r for registers.
func vdpbf16ps(d, s, r int) []byte {
	return append(dpbf16(d, s, r>>4, r>>3&1, false), byte(0xC0|(d&7)<<3|r&7))
}

// dotBlocks writes dotBlocks: eight rows of a block at a time, both halves of its columns, in Z0 to Z15.
// Registers: SI a, DI c, R8 aStride, AX 3·aStride, R12 and R13 the first and fifth row, BX and R14 the
// halves of b, R11 where the rows lie in c, CX rows left by eights, DX steps left.
func (t *amxText) dotBlocks() {
	t.line("// func dotBlocks(args *amxArgs)")
	t.line("TEXT ·dotBlocks(SB), NOSPLIT, $0-8\n\tMOVQ args+0(FP), R9")
	for _, m := range [][2]string{{"a", "SI"}, {"aStride", "R8"}, {"aStep", "R10"}, {"c", "DI"}, {"next", "R15"}} {
		t.line("\tMOVQ %s, %s", field(m[0]), m[1])
	}
	t.line("block:\n\tMOVQ $4, CX\n\tMOVQ DI, R11\n\tMOVQ SI, R12\neight:\n\tLEAQ (R8)(R8*2), " +
		"AX\n\tLEAQ (R12)(R8*4), R13")
	t.line("\tCMPQ %s, $0\n\tJEQ zero", field("acc"))
	for r := range 8 {
		t.line("\tVMOVUPS %d(R11), Z%d\n\tVMOVUPS %d(R11), Z%d", 64*r, 2*r, 1024+64*r, 2*r+1)
	}
	t.line("\tJMP start\nzero:")
	for i := range 16 {
		t.line("\tVPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	t.line("start:\n\tMOVQ %s, BX\n\tMOVQ BX, R14\n\tADDQ %s, R14\n\tMOVQ %s, DX\nstep:", field("b"),
		field("bHalf"), field("ks"))
	t.dotStep()
	t.line("\tPREFETCHT1 (R15)\n\tADDQ $64, R15")
	t.line("\tADDQ R10, R12\n\tADDQ R10, R13\n\tADDQ $1024, BX\n\tADDQ $1024, R14\n\tDECQ DX\n\tJNZ step")
	for r := range 8 {
		t.line("\tVMOVUPS Z%d, %d(R11)\n\tVMOVUPS Z%d, %d(R11)", 2*r, 64*r, 2*r+1, 1024+64*r)
	}
	// The next eight rows: below in the same tiles, then the upper ones of the lower tiles.
	t.line("\tADDQ $512, R11\n\tDECQ CX\n\tJZ whole\n\tCMPQ CX, $2\n\tJEQ lower\n\tMOVQ SI, R12\n\tCMPQ "+
		"CX, $3\n\tJEQ upper\n\tADDQ %s, R12\nupper:\n\tLEAQ (R12)(R8*8), R12\n\tJMP eight", field("aHalf"))
	t.line("lower:\n\tADDQ $1024, R11\n\tMOVQ SI, R12\n\tADDQ %s, R12\n\tJMP eight\nwhole:", field("aHalf"))
	t.finish()
	t.line("\tADDQ %s, SI\n\tADDQ %s, DI\n\tDECQ %s\n\tJNZ block\n\tSFENCE\n\tVZEROUPPER\n\tRET\n",
		field("aNext"), field("cNext"), field("n"))
}

// dotInRows writes dotInRows: blocks whose sums begin and end in rows of dst, without tiles in between, for
// short sums. Mode 4 adds to the rows. Registers as in dotBlocks, but for DI the row of dst, R11 the same in
// a loop over rows, and R15 ldd.
func (t *amxText) dotInRows() {
	t.line("// func dotInRows(args *amxArgs)")
	t.line("TEXT ·dotInRows(SB), NOSPLIT, $0-8\n\tMOVQ args+0(FP), R9")
	for _, m := range [][2]string{{"a", "SI"}, {"aStride", "R8"}, {"aStep", "R10"}, {"dst", "DI"}, {"ldd", "R15"}} {
		t.line("\tMOVQ %s, %s", field(m[0]), m[1])
	}
	t.line("block:\n\tMOVQ $4, CX\n\tMOVQ SI, R12\neight:\n\tLEAQ (R8)(R8*2), AX\n\tLEAQ (R12)(R8*4), R13")
	t.line("\tCMPQ %s, $4\n\tJNE zero\n\tMOVQ DI, R11", field("mode"))
	for r := range 8 {
		t.line("\tVMOVUPS (R11), Z%d\n\tVMOVUPS 64(R11), Z%d\n\tADDQ R15, R11", 2*r, 2*r+1)
	}
	t.line("\tJMP start\nzero:")
	for i := range 16 {
		t.line("\tVPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	t.line("start:\n\tMOVQ %s, BX\n\tMOVQ BX, R14\n\tADDQ %s, R14\n\tMOVQ %s, DX\nstep:", field("b"),
		field("bHalf"), field("ks"))
	t.dotStep()
	t.line("\tADDQ R10, R12\n\tADDQ R10, R13\n\tADDQ $1024, BX\n\tADDQ $1024, R14\n\tDECQ DX\n\tJNZ step")
	for r := range 8 {
		t.line("\tVMOVUPS Z%d, (DI)\n\tVMOVUPS Z%d, 64(DI)\n\tADDQ R15, DI", 2*r, 2*r+1)
	}
	t.line("\tDECQ CX\n\tJZ whole")
	t.eights()
	t.line("whole:\n\tADDQ %s, SI\n\tDECQ %s\n\tJNZ block\n\tVZEROUPPER\n\tRET\n", field("aNext"), field("n"))
}

// dotStep multiplies 32 elements of the sum of eight rows by both halves of the columns.
func (t *amxText) dotStep() {
	for p := range 16 {
		t.line("\tVMOVUPS %d(BX), Z16\n\tVMOVUPS %d(R14), Z17", 64*p, 64*p)
		for r := range 8 {
			base, index, scale := []string{"R12", "R13"}[r/4], []string{"", "R8", "R8", "AX"}[r%4],
				[]int{1, 1, 2, 1}[r%4]
			for h := range 2 {
				t.raw(fmt.Sprintf("VDPBF16PS %d(%s)(%s*%d){1to16}, Z%d, Z%d", 4*p, base, index, scale, 16+h,
					2*r+h), vdpbf16psMem(2*r+h, 16+h, base, index, scale, 4*p))
			}
		}
	}
}

// eights moves R12 to the next eight rows, of which CX are left: below in the same tiles, or the upper ones
// of the lower tiles.
func (t *amxText) eights() {
	t.line("\tMOVQ SI, R12\n\tCMPQ CX, $3\n\tJEQ upper\n\tADDQ %s, R12\n\tCMPQ CX, $2\n\tJEQ "+
		"eight\nupper:\n\tLEAQ (R12)(R8*8), R12\n\tJMP eight", field("aHalf"))
}

// dotPeak writes the yardstick of the benchmarks: sixteen chains of products in registers, n times.
func (t *amxText) dotPeak() {
	t.line("// func dotPeak(n int)\nTEXT ·dotPeak(SB), NOSPLIT, $0-8\n\tMOVQ n+0(FP), CX")
	for i := range 18 {
		t.line("\tVPXORD Z%d, Z%d, Z%d", i, i, i)
	}
	t.line("again:")
	for i := range 16 {
		t.raw(fmt.Sprintf("VDPBF16PS Z16, Z17, Z%d", i), vdpbf16ps(i, 17, 16))
	}
	t.line("\tDECQ CX\n\tJNZ again\n\tVZEROUPPER\n\tRET")
}
