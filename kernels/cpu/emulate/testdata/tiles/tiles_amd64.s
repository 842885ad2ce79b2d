#include "textflag.h"

// Bytes are those of GNU as 2.40.

// func loadConfig(c *[64]byte)
TEXT ·loadConfig(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0x00 // ldtilecfg (%rax)
	RET

// func storeConfig(c *[64]byte)
TEXT ·storeConfig(SB), NOSPLIT, $0-8
	MOVQ c+0(FP), AX
	BYTE $0xC4; BYTE $0xE2; BYTE $0x79; BYTE $0x49; BYTE $0x00 // sttilecfg (%rax)
	RET

// func load(v *[1024]byte)
TEXT ·load(SB), NOSPLIT, $0-8
	MOVQ v+0(FP), AX
	MOVQ $64, BX
	BYTE $0xC4; BYTE $0xE2; BYTE $0x7B; BYTE $0x4B; BYTE $0x04; BYTE $0x18 // tileloadd (%rax,%rbx,1),%tmm0
	RET

// func store(v *[1024]byte)
TEXT ·store(SB), NOSPLIT, $0-8
	MOVQ v+0(FP), AX
	MOVQ $64, BX
	BYTE $0xC4; BYTE $0xE2; BYTE $0x7A; BYTE $0x4B; BYTE $0x04; BYTE $0x18 // tilestored %tmm0,(%rax,%rbx,1)
	RET

// func release()
TEXT ·release(SB), NOSPLIT, $0-0
	BYTE $0xC4; BYTE $0xE2; BYTE $0x78; BYTE $0x49; BYTE $0xC0 // tilerelease
	RET

// func undefined()
TEXT ·undefined(SB), NOSPLIT, $0-0
	UD2
	RET
