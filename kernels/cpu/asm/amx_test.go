package main

import (
	"encoding/hex"
	"testing"
)

// The bytes are what GNU as 2.40 writes for the instruction in the comment.
func TestEncodings(t *testing.T) {
	for _, c := range []struct {
		name string
		have []byte
		want string
	}{
		{"tileloadd 0x400(%rdi,%r11,1),%tmm1", tileMemory(3, 1, "DI", "R11", 0x400), "c4a27b4b8c1f00040000"},
		{"tileloadd 0x0(%r14,%r11,1),%tmm7", tileMemory(3, 7, "R14", "R11", 0), "c4827b4bbc1e00000000"},
		{"tileloaddt1 0x0(%r12,%r8,1),%tmm4", tileMemory(1, 4, "R12", "R8", 0), "c482794ba40400000000"},
		{"tilestored %tmm3,0xc00(%rdi,%r11,1)", tileMemory(2, 3, "DI", "R11", 0xc00), "c4a27a4b9c1f000c0000"},
		{"tdpbf16ps %tmm7,%tmm5,%tmm3", tdpbf16ps(3, 5, 7), "c4e2425cdd"},
		{"tilezero %tmm6", tileZero(6), "c4e27b49f0"},
		{"ldtilecfg 0x0(%rax)", ldTileCfg("AX"), "c4e278498000000000"},
		{"tilerelease", tileRelease, "c4e27849c0"},
		{"vcvtne2ps2bf16 %zmm2,%zmm3,%zmm17", vcvtne2ps2bf16(17, 3, 2), "62e2674872ca"},
		{"vcvtne2ps2bf16 %zmm25,%zmm30,%zmm9", vcvtne2ps2bf16(9, 30, 25), "62120f4072c9"},
		{"vcvtneps2bf16 %zmm2,%ymm17", vcvtneps2bf16(17, 2), "62e27e4872ca"},
		{"vcvtneps2bf16 %zmm25,%ymm9", vcvtneps2bf16(9, 25), "62127e4872c9"},
		{"vcvtneps2bf16 %zmm13,%ymm30", vcvtneps2bf16(30, 13), "62427e4872f5"},
		{"vdpbf16ps 0x3c(%r12,%r8,2){1to16},%zmm17,%zmm5", vdpbf16psMem(5, 17, "R12", "R8", 2, 0x3c),
			"62927650526c440f"},
		{"vdpbf16ps 0x4(%r13){1to16},%zmm16,%zmm14", vdpbf16psMem(14, 16, "R13", "", 1, 4), "62527e50527501"},
		{"vdpbf16ps 0x8(%r13,%rax,1){1to16},%zmm16,%zmm15", vdpbf16psMem(15, 16, "R13", "AX", 1, 8),
			"62527e50527c0502"},
		{"vdpbf16ps %zmm16,%zmm17,%zmm9", vdpbf16ps(9, 17, 16), "6232764052c8"},
	} {
		if have := hex.EncodeToString(c.have); have != c.want {
			t.Errorf("%s: %s, want %s", c.name, have, c.want)
		}
	}
}
