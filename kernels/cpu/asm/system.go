package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"
)

// system writes what tells the processor's abilities, and the busy wait's pause.
func system() {
	TEXT("cpuid", NOSPLIT, "func(leaf, sub uint32) (a, b, c, d uint32)")
	Doc("cpuid executes CPUID.")
	Load(Param("leaf"), reg.EAX)
	Load(Param("sub"), reg.ECX)
	CPUID()
	for i, r := range []reg.Register{reg.EAX, reg.EBX, reg.ECX, reg.EDX} {
		Store(r, ReturnIndex(i))
	}
	RET()

	TEXT("xgetbv", NOSPLIT, "func() uint32")
	Doc("xgetbv is the low half of XCR0: the register state that the operating system saves.")
	XORL(reg.ECX, reg.ECX)
	XGETBV()
	Store(reg.EAX, ReturnIndex(0))
	RET()

	TEXT("pause", NOSPLIT, "func()")
	Doc("pause gives a busy wait a moment, about 0.1 µs.")
	for range 2 {
		PAUSE()
	}
	RET()
}
