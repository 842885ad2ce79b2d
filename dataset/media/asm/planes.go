package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// planar writes the taking apart of channels.
func planar() {
	begin("planar", "func(red, green, blue, src *byte, n int)", "takes the channels of n·16 pixels apart.")
	to := []reg.GPVirtual{arg("red"), arg("green"), arg("blue")}
	src, n := arg("src"), arg("n")
	loop("nextPlanar", n, func() {
		in := []reg.VecVirtual{XMM(), XMM(), XMM()}
		for part, x := range in {
			VMOVDQU(at(src, 16*part), x)
		}
		for c, dst := range to {
			sum := XMM()
			for part, x := range in {
				mask := constant("gather"+string(rune('0'+part))+string(rune('0'+c)), func(i int) byte {
					if k := 3*i + c - 16*part; i < 16 && k >= 0 && k < 16 {
						return byte(k)
					}
					return 0x80
				})
				if part == 0 {
					VPSHUFB(mask, x, sum)
					continue
				}
				t := XMM()
				VPSHUFB(mask, x, t)
				VPOR(t, sum, sum)
			}
			VMOVDQU(sum, at(dst, 0))
			ADDQ(Imm(16), dst)
		}
		ADDQ(Imm(48), src)
	})
	end()
}
