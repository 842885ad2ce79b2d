package webp

import (
	"encoding/binary"
	"unsafe"
)

func little(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// pixels reads the pixels of an image.
func (d *lossless) pixels(pix []uint32, w int, g groups, cache *colorCache) error {
	cached := 0 // pixels that are in the cache
	at, x, y := 0, 0, 0
	area := &g.all[0]
	for at < len(pix) {
		end := min(at+w-x, len(pix)) // of the run of pixels with one group
		if g.tiles != nil {
			area = &g.all[g.tiles[y>>g.bits*g.row+x>>g.bits]]
			end = min(end, at+(x>>g.bits+1)<<g.bits-x)
		}
		begin := at
		var special int
		at, special = d.literals(pix, at, end, area)
		if d.n < 0 {
			return d.err()
		}
		switch {
		case special < 0: // the run is full
		case special < 256+24:
			n, ok := d.repeat(pix, at, special-256, area, w)
			if !ok {
				return errLossless
			}
			at += n
		default:
			cache.insert(pix[cached:at])
			cached = at
			if special -= 256 + 24; special >= len(cache.pix) {
				return errLossless
			}
			pix[at] = cache.pix[special]
			at++
		}
		for x += at - begin; x >= w; x -= w {
			y++
		}
	}
	return d.err()
}

// literals reads pixels until another symbol than a pixel's green comes, which it returns, or -1 at the end.
func (d *lossless) literals(pix []uint32, at, end int, g *group) (int, int) {
	if native && g.plain && at < end && d.n >= 0 {
		n, symbol := readLiterals((*byte)(unsafe.Pointer(&d.bitReader)), &pix[at], end-at, &g.codes[0][0],
			&g.codes[1][0], &g.codes[2][0], g.alpha)
		at += n
		if symbol >= -1 {
			return at, symbol
		}
	}
	for ; at < end && d.n >= 0; at++ {
		green := d.symbol(g.codes[0])
		if green >= 256 {
			return at, green
		}
		red := d.symbol(g.codes[1])
		blue := d.symbol(g.codes[2])
		pix[at] = uint32(d.symbol(g.codes[3])<<24 | red<<16 | green<<8 | blue)
	}
	return at, -1
}

// repeat copies pixels from before; symbol tells how many.
func (d *lossless) repeat(pix []uint32, at, symbol int, g *group, w int) (n int, ok bool) {
	n = d.prefixed(symbol)
	back := distance(d.prefixed(d.symbol(g.codes[4])), w)
	if back > at || n > len(pix)-at {
		return 0, false
	}
	to, from := pix[at:at+n], pix[at-back:]
	for len(to) > 0 { // what was copied can be copied again
		k := copy(to, from[:min(back, len(to))])
		to, back = to[k:], back+k
	}
	return n, true
}

// prefixed is a length or distance: its symbol tells how many bits follow.
func (d *lossless) prefixed(symbol int) int {
	if symbol < 4 {
		return symbol + 1
	}
	more := (symbol - 2) >> 1
	return (2+symbol&1)<<more + d.bits(more) + 1
}

// nearby are the distances of the first numbers: rows up, and 8 less the columns to the left.
var nearby = [120]byte{
	0x18, 0x07, 0x17, 0x19, 0x28, 0x06, 0x27, 0x29, 0x16, 0x1a, 0x26, 0x2a, 0x38, 0x05, 0x37, 0x39, 0x15,
	0x1b, 0x36, 0x3a,
	0x25, 0x2b, 0x48, 0x04, 0x47, 0x49, 0x14, 0x1c, 0x35, 0x3b, 0x46, 0x4a, 0x24, 0x2c, 0x58, 0x45, 0x4b,
	0x34, 0x3c, 0x03,
	0x57, 0x59, 0x13, 0x1d, 0x56, 0x5a, 0x23, 0x2d, 0x44, 0x4c, 0x55, 0x5b, 0x33, 0x3d, 0x68, 0x02, 0x67,
	0x69, 0x12, 0x1e,
	0x66, 0x6a, 0x22, 0x2e, 0x54, 0x5c, 0x43, 0x4d, 0x65, 0x6b, 0x32, 0x3e, 0x78, 0x01, 0x77, 0x79, 0x53,
	0x5d, 0x11, 0x1f,
	0x64, 0x6c, 0x42, 0x4e, 0x76, 0x7a, 0x21, 0x2f, 0x75, 0x7b, 0x31, 0x3f, 0x63, 0x6d, 0x52, 0x5e, 0x00,
	0x74, 0x7c, 0x41,
	0x4f, 0x10, 0x20, 0x62, 0x6e, 0x30, 0x73, 0x7d, 0x51, 0x5f, 0x40, 0x72, 0x7e, 0x61, 0x6f, 0x50, 0x71,
	0x7f, 0x60, 0x70,
}

// distance is how many pixels a number goes back in rows of w.
func distance(n, w int) int {
	if n > len(nearby) {
		return n - len(nearby)
	}
	v := int(nearby[n-1])
	return max(v>>4*w+8-v&15, 1)
}
