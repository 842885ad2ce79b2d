package emulate

import "encoding/binary"

// opcode is one of the AMX instructions of the tile and the bfloat16 extension.
type opcode uint8

const (
	ldTileCfg opcode = 1 + iota
	stTileCfg
	tileRelease
	tileZero
	tileLoadD // TILELOADDT1 too: it differs in a hint to the caches
	tileStoreD
	tdpBF16PS
)

var opcodeNames = map[opcode]string{ldTileCfg: "LDTILECFG", stTileCfg: "STTILECFG", tileRelease: "TILERELEASE",
	tileZero: "TILEZERO", tileLoadD: "TILELOADD", tileStoreD: "TILESTORED", tdpBF16PS: "TDPBF16PS"}

func (o opcode) String() string { return opcodeNames[o] }

// Numbers of registers are those of the encoding; ripBase and noRegister stand in their place.
const (
	ripBase    = 16
	noRegister = 17
)

// registers are the general registers in the order of their numbers, the address of the next instruction, and a zero.
type registers [18]uint64

// instruction is a decoded AMX instruction.
type instruction struct {
	op   opcode
	size uint64 // bytes
	// Tiles: tile is ModRM.reg; left is ModRM.rm and right is VEX.vvvv, for TDPBF16PS alone.
	tile, left, right int
	// The memory operand is at base + disp; index << scale is the stride of tiles, and a part of the address elsewhere.
	base, index int
	scale       uint
	disp        int64
}

// The mandatory prefixes as VEX.pp has them.
const (
	prefixNone = iota
	prefix66
	prefixF3
	prefixF2
)

// longest is the length of the longest AMX instruction: VEX, opcode, ModRM, SIB and a displacement of four bytes.
const longest = 10

// decode reads the instruction at the beginning of code. It tells whether that is one of the AMX instructions above in
// an encoding that a processor accepts in 64-bit mode. Source: Intel SDM, volume 2, 2.3 and the instructions' pages.
func decode(code []byte) (instruction, bool) {
	var in instruction
	// Three bytes of VEX: map 0F38, W=0, L=0; R is inverted, and 1 because there are eight tiles.
	if len(code) < 5 || code[0] != 0xC4 || code[1]&0x9F != 0x82 || code[2]&0x84 != 0 {
		return in, false
	}
	x, b := int(code[1]>>6&1^1), int(code[1]>>5&1^1)
	vvvv, prefix := int(code[2]>>3&15^15), code[2]&3
	modrm := code[4]
	in.tile, in.size = int(modrm>>3&7), 5
	memory := modrm>>6 != 3
	switch {
	case code[3] == 0x49 && memory && in.tile == 0 && prefix == prefixNone:
		in.op = ldTileCfg
	case code[3] == 0x49 && memory && in.tile == 0 && prefix == prefix66:
		in.op = stTileCfg
	case code[3] == 0x49 && modrm == 0xC0 && prefix == prefixNone:
		in.op = tileRelease
	case code[3] == 0x49 && modrm&0xC7 == 0xC0 && prefix == prefixF2:
		in.op = tileZero
	case code[3] == 0x4B && memory && modrm&7 == 4 && (prefix == prefixF2 || prefix == prefix66):
		in.op = tileLoadD
	case code[3] == 0x4B && memory && modrm&7 == 4 && prefix == prefixF3:
		in.op = tileStoreD
	case code[3] == 0x5C && !memory && prefix == prefixF3 && vvvv < 8:
		in.op, in.left, in.right = tdpBF16PS, int(modrm&7), vvvv
		return in, true
	default:
		return in, false
	}
	if vvvv != 0 {
		return in, false
	}
	return in, !memory || in.operand(code, modrm, x<<3, b<<3)
}

// operand decodes the memory operand that follows modrm; x and b extend the numbers of index and base. It
// tells whether code holds all of it.
func (in *instruction) operand(code []byte, modrm byte, x, b int) bool {
	in.base, in.index = int(modrm&7)|b, noRegister
	low := modrm & 7
	if low == 4 {
		if len(code) < 6 {
			return false
		}
		sib := code[5]
		low = sib & 7
		in.size, in.base, in.index, in.scale = 6, int(low)|b, int(sib>>3&7)|x, uint(sib>>6)
		if in.index == 4 {
			in.index = noRegister
		}
	}
	wide := 0
	switch mod := modrm >> 6; {
	case mod == 0 && low == 5:
		wide = 4
		if in.base = noRegister; modrm&7 == 5 {
			in.base = ripBase
		}
	case mod == 1:
		wide = 1
	case mod == 2:
		wide = 4
	}
	rest := code[in.size:]
	if len(rest) < wide {
		return false
	}
	switch wide {
	case 1:
		in.disp = int64(int8(rest[0]))
	case 4:
		in.disp = int64(int32(binary.LittleEndian.Uint32(rest)))
	}
	in.size += uint64(wide)
	return true
}
