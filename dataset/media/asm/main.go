// Command asm writes the assembly of dataset/media for AVX2 and BMI2: JPEG's codes, inverse transform, smooth chroma,
// colours and their planes, and resizing, and PNG's filters. Run "go generate" there.
package main

import (
	"flag"
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	flag.Parse() // avo's
	ConstraintExpr("amd64")
	run()
	inverse()
	smooth22()
	smooth21()
	colours()
	planar()
	columns()
	rows()
	png()
	Generate()
}

// begin starts a function.
func begin(name, signature, doc string) {
	TEXT(name, NOSPLIT, signature)
	Doc(name+" "+doc, "The pure Go of the same arithmetic defines it.")
	Pragma("noescape")
}

func end() {
	VZEROUPPER()
	RET()
}

func arg(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

func at(base reg.GPVirtual, disp int) Mem { return Mem{Base: base, Disp: disp} }

var constants = map[string]Mem{}

// constant is read-only data of 32 bytes, made once.
func constant(name string, value func(i int) byte) Mem {
	if m, ok := constants[name]; ok {
		return m
	}
	m := GLOBL(name, 8|16)
	for i := 0; i < 32; i++ {
		DATA(i, U8(value(i)))
	}
	constants[name] = m
	return m
}

// words is a constant of two 16-bit numbers in turn.
func words(a, b int) Mem {
	return constant(fmt.Sprintf("words_%d_%d", uint16(a), uint16(b)), func(i int) byte {
		v := []int{a, b}[i/2%2]
		return byte(v >> (8 * (i % 2)))
	})
}

// dwords is a constant of a 32-bit number.
func dwords(a int) Mem {
	return constant(fmt.Sprintf("dwords_%d", uint32(a)), func(i int) byte { return byte(a >> (8 * (i % 4))) })
}

// fill returns a register with a constant.
func fill(m Mem) reg.VecVirtual {
	r := YMM()
	VMOVDQU(m, r)
	return r
}

// loop runs its body n times; n is used up.
func loop(name string, n reg.GPVirtual, body func()) {
	Label(name)
	TESTQ(n, n)
	JZ(LabelRef(name + "_end"))
	body()
	DECQ(n)
	JMP(LabelRef(name))
	Label(name + "_end")
}
