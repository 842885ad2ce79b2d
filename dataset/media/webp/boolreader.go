package webp

import (
	"encoding/binary"
	"math/bits"
)

// boolReader reads bits of an arithmetic code (section 7). The assembly knows where its fields lie.
type boolReader struct {
	b     []byte
	i     int    // of the next byte
	value uint64 // the next bits, from the top down
	n     int    // of them are counted; others may follow, that are read again
	span  uint64 // of the interval, from 128 to 255
	ended bool   // a bit was read of which the data does not have all
}

func newBoolReader(b []byte) boolReader { return boolReader{b: b, span: 255} }

// bit reads a bit that is 0 with a probability of p/256.
func (r *boolReader) bit(p byte) bool {
	if r.n < 8 {
		r.fill()
	}
	split := (r.span-1)*uint64(p)>>8 + 1
	one := r.value >= split<<56
	if one {
		r.value -= split << 56
		r.span -= split
	} else {
		r.span = split
	}
	shift := uint(bits.LeadingZeros8(uint8(r.span))) & 7
	r.span <<= shift
	r.value <<= shift
	r.n -= int(shift)
	return one
}

// fill counts eight bits or more. Behind the data are zeros.
func (r *boolReader) fill() {
	switch {
	case r.i+8 <= len(r.b):
		r.value |= binary.BigEndian.Uint64(r.b[r.i:]) >> uint(r.n&63)
		r.i += 7
		r.n |= 56
		return
	case r.i < len(r.b):
		r.value |= uint64(r.b[r.i]) << uint((56-r.n)&63)
		r.i++
	default:
		r.ended = true
	}
	r.n += 8
}

// flag reads a bit of no bias.
func (r *boolReader) flag() bool { return r.bit(128) }

// number reads n bits.
func (r *boolReader) number(n int) (v int32) {
	for range n {
		v <<= 1
		if r.flag() {
			v |= 1
		}
	}
	return v
}

// maybe reads a number of n bits and its sign, if a bit before it says that there is one.
func (r *boolReader) maybe(n int) int32 {
	if !r.flag() {
		return 0
	}
	v := r.number(n)
	if r.flag() {
		return -v
	}
	return v
}
