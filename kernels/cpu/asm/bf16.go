package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

// halfPrimitives writes those primitives of the elementwise operations that read and write bfloat16 without
// a copy in float32, for processors that round in one instruction.
func (e *emitter) halfPrimitives() {
	e.pairwise("addHalf", VADDPS, true)
	e.pairwise("mulHalf", VMULPS, true)
	e.scaleHalf()
	e.swiglu("swigluHalf", true)
	e.swigluBwd("swigluBwdHalf", true)
	e.gelu("geluHalf", true)
	e.geluBwd("geluBwdHalf", true)
	e.dot("dotHalf", true)
	e.dot3("dot3Half", true)
	e.mulAcc("mulAccHalf", true)
	e.norm("normHalf", true)
	e.normDX("normDXHalf", true)
	e.moments("Half", true)
	e.layer("layerHalf", true)
	e.rope("ropeHalf", true)
	e.roundHalf()
}

// elements names the element type of operands.
func elements(half bool) string {
	if half {
		return "uint16"
	}
	return "float32"
}

// put stores v, rounded to bfloat16 if half.
func (e *emitter) put(v vec, m Mem, half, masked bool) {
	if !half {
		e.store(v, m, masked)
		return
	}
	h := YMM()
	roundPairs(v, h)
	if masked {
		VMOVDQU16(h, e.mask, m)
	} else {
		VMOVDQU16(h, m)
	}
}

// putPast is put past the caches.
func (e *emitter) putPast(v vec, m Mem, half bool) {
	if !half {
		VMOVNTPS(v, m)
		return
	}
	h := YMM()
	roundPairs(v, h)
	VMOVNTDQ(h, m)
}

// roundHalf is toBF16 in one instruction a vector; subnormal numbers become 0.
func (e *emitter) roundHalf() {
	e.beginMove("roundHalf", "func(y []uint16, x []float32)", "rounds to nearest even.")
	e.halves(true, "y")
	e.each(4, []string{"x", "y"}, func(m []Mem, _ int, masked bool) { e.put(e.load(m[0], masked), m[1], true, masked) })
	e.end()
}

// roundPairs rounds the float32s of z to bfloat16 in y. avo does not know VCVTNEPS2BF16; another instruction
// with the same operands, which nothing here needs, holds its place until encodeFile knows the registers.
func roundPairs(z, y vec) { VCVTPD2PS(z, y) }

var (
	heldPlace    = regexp.MustCompile(`(?m)^\tVCVTPD2PS +Z(\d+), Y(\d+)$`)
	heldDotPlace = regexp.MustCompile(`(?m)^\tVPDPWSSD +Z(\d+), Z(\d+), Z(\d+)$`)
)

// encoded is a line of assembly with the bytes of an instruction.
func encoded(code []byte, comment string) string {
	var s []string
	for _, x := range code {
		s = append(s, fmt.Sprintf("BYTE $0x%02X", x))
	}
	return "\t" + strings.Join(s, "; ") + " // " + comment
}

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
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	out := heldPlace.ReplaceAllStringFunc(string(text), func(line string) string {
		m := heldPlace.FindStringSubmatch(line)
		z, y := number(m[1]), number(m[2])
		return encoded(vcvtneps2bf16(y, z), fmt.Sprintf("VCVTNEPS2BF16 Z%d, Y%d", z, y))
	})
	out = heldDotPlace.ReplaceAllStringFunc(out, func(line string) string {
		m := heldDotPlace.FindStringSubmatch(line)
		r, s, d := number(m[1]), number(m[2]), number(m[3])
		return encoded(vdpbf16ps(d, s, r), fmt.Sprintf("VDPBF16PS Z%d, Z%d, Z%d", r, s, d))
	})
	if strings.Contains(out, "VCVTPD2PS") || strings.Contains(out, "VPDPWSSD") {
		return fmt.Errorf("%s: an instruction that holds another's place has other operands", name)
	}
	return os.WriteFile(name, []byte(out), 0o644)
}

// scaleHalf emits the scaling of bfloat16, computed in float32 and rounded once.
func (e *emitter) scaleHalf() {
	e.begin("scaleHalf", "func(y, x []uint16, s float32)", "is y = s·x.")
	s := e.float("s")
	e.halves(true, "y", "x")
	e.each(4, []string{"y", "x"}, func(m []Mem, _ int, masked bool) {
		x := e.get(m[1], true, masked)
		VMULPS(s, x, x)
		e.put(x, m[0], true, masked)
	})
	e.end()
}
