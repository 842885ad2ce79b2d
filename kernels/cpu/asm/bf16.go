package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	. "github.com/mmcloughlin/avo/build"
)

// roundPairs rounds the float32s of z to bfloat16 in y. avo does not know VCVTNEPS2BF16; another instruction with the same
// operands, which nothing here needs, holds its place until encodeFile knows the registers.
func roundPairs(z, y vec) { VCVTPD2PS(z, y) }

var heldPlace = regexp.MustCompile(`(?m)^\tVCVTPD2PS +Z(\d+), Y(\d+)$`)

// vcvtneps2bf16 encodes y = z rounded (EVEX.512.F3.0F38.W0 72).
func vcvtneps2bf16(y, z int) []byte {
	not := func(bit int) byte { return byte(1 - bit&1) }
	p0 := 0x02 | not(y>>3)<<7 | not(z>>4)<<6 | not(z>>3)<<5 | not(y>>4)<<4
	return []byte{0x62, p0, 0x7E, 0x48, 0x72, byte(0xC0 | (y&7)<<3 | z&7)}
}

// encodeFile writes the bytes of the instructions that held their places.
func encodeFile(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	out := heldPlace.ReplaceAllStringFunc(string(text), func(line string) string {
		m := heldPlace.FindStringSubmatch(line)
		z, _ := strconv.Atoi(m[1])
		y, _ := strconv.Atoi(m[2])
		var s []string
		for _, x := range vcvtneps2bf16(y, z) {
			s = append(s, fmt.Sprintf("BYTE $0x%02X", x))
		}
		return "\t" + strings.Join(s, "; ") + fmt.Sprintf(" // VCVTNEPS2BF16 Z%d, Y%d", z, y)
	})
	if strings.Contains(out, "VCVTPD2PS") {
		return fmt.Errorf("%s: an instruction that holds the place of VCVTNEPS2BF16 has other operands", name)
	}
	return os.WriteFile(name, []byte(out), 0o644)
}
