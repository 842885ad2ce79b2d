package media

import (
	"encoding/binary"
	"errors"
)

// lookBits is how many bits a Huffman table is looked up by; longer codes are rare.
const lookBits = 11

// huffman decodes codes of up to 16 bits.
type huffman struct {
	// whole has codes with the number behind them: the bits of both, how far the position moves on, and the
	// number, from the lowest byte up. 0 is longer than lookBits together.
	whole [1 << lookBits]uint32
	// codes has codes alone: the length, and above it the symbol. 0 is longer.
	codes   [1 << lookBits]uint16
	maxCode [18]int32 // of each length, -1 for none
	offset  [17]int32 // of a length's values
	values  []byte
}

// newHuffman reads a table of direct or alternating current and returns how many bytes it took.
func newHuffman(b []byte, dc bool) (*huffman, int, error) {
	h, total := &huffman{}, 0
	code := int32(0)
	for l := 1; l <= 16; l++ {
		n := int32(b[l-1])
		h.offset[l] = int32(total) - code
		code += n
		total += int(n)
		h.maxCode[l] = code - 1
		if n == 0 {
			h.maxCode[l] = -1
		}
		if code > 1<<l {
			return nil, 0, errJPEG
		}
		code <<= 1
	}
	if total > 256 || len(b) < 16+total {
		return nil, 0, errJPEG
	}
	h.values = b[16 : 16+total]
	for l := 1; l <= lookBits; l++ {
		for k := range int32(b[l-1]) {
			code := h.maxCode[l] - int32(b[l-1]) + 1 + k
			h.fill(code, l, h.values[code+h.offset[l]], dc)
		}
	}
	return h, 16 + total, nil
}

// fill enters a code of l bits.
func (h *huffman) fill(code int32, l int, symbol byte, dc bool) {
	run, size := int(symbol>>4), int(symbol&15)
	if dc {
		run, size = 0, int(symbol)
	}
	on := run + 1
	if !dc && size == 0 && run < 15 {
		on = blockEnd
	}
	first := code << (lookBits - l)
	for rest := range int32(1) << (lookBits - l) {
		at := first + rest
		h.codes[at] = uint16(l) | uint16(symbol)<<8
		if l+size <= lookBits && size <= sizeMax(dc) {
			value := extended(rest>>(lookBits-l-size), size)
			h.whole[at] = uint32(l+size) | uint32(on)<<8 | uint32(uint16(value))<<16
		}
	}
}

// sizeMax is how many bits a number of 8-bit images has: a difference of the first coefficients, or another
// coefficient (T.81, F.1.2). More is damage.
func sizeMax(dc bool) int {
	if dc {
		return 11
	}
	return 10
}

// extended is the signed number that bits stand for.
func extended(bits int32, size int) int32 {
	if size > 0 && bits < 1<<(size-1) {
		bits -= 1<<size - 1
	}
	return bits
}

// bitReader reads the bits between two markers; behind them are zeros, as libjpeg has it.
type bitReader struct {
	b   []byte
	i   int    // of the next byte
	acc uint64 // the next bits, from the top down
	n   uint   // of them are counted; others may follow, that are read again
	pad uint   // of those counted since the last marker were zeros behind it
	rst byte   // restart markers passed
}

// early says that more bits were taken than stand in front of the marker.
func (r *bitReader) early() bool { return r.pad > r.n }

// lateMax is how many bytes, not all zero, may stand between a scan's last block and the next marker: some
// cameras leave one or two.
const lateMax = 2

// late says that more stands between the bits that were taken and the marker than writers leave there.
func (r *bitReader) late() bool {
	left := uint64(0)
	if !r.early() {
		left = uint64((r.n - r.pad) / 8)
	}
	zero := left == 0 || r.acc<<((r.n-r.pad)%8)>>(64-8*min(left, 7)) == 0
	b := r.b[min(r.i, len(r.b)):]
	for len(b) > 1 && (b[0] != 0xff || b[1] == 0 || b[1] == 0xff) {
		if b[0] != 0xff || b[1] == 0 { // else a fill byte
			left++
			zero = zero && b[0] == 0
		}
		b = b[1:]
	}
	return left > lateMax && !zero
}

var (
	errEarly = errors.New("the image is cut off or damaged: a scan ends before its last block")
	errLate  = errors.New("the image is damaged: more data follow the last block of a scan")
)

// refill counts at least 32 bits.
func (r *bitReader) refill() {
	b := r.b[r.i:]
	if len(b) >= 8 {
		x := binary.BigEndian.Uint64(b)
		if y := ^x; (y-0x0101010101010101)&^y&0x8080808080808080 == 0 { // no byte is ff
			r.acc |= x >> (r.n & 63)
			r.i += int((63 - r.n) >> 3)
			r.n |= 56
			return
		}
	}
	for ; r.n <= 56; r.n += 8 {
		c, size := byte(0), 0
		switch {
		case len(b) > 0 && b[0] != 0xff:
			c, size = b[0], 1
		case len(b) > 1:
			size = 1
			for size+1 < len(b) && b[size] == 0xff {
				size++
			}
			if c = 0xff; b[size] != 0 { // a marker
				c, size = 0, 0
			} else {
				size++
			}
		}
		if size == 0 {
			r.pad += 8
		}
		b, r.i = b[size:], r.i+size
		r.acc |= uint64(c) << (56 - r.n)
	}
}

func (r *bitReader) bit() int32 { return r.take(1) }

// take reads up to 16 bits.
func (r *bitReader) take(n int) int32 {
	if r.n < 32 {
		r.refill()
	}
	v := int32(r.acc >> 1 >> ((63 - uint(n)) & 63))
	r.acc <<= uint(n) & 63
	r.n -= uint(n)
	return v
}

// extend reads n bits of a signed number.
func (r *bitReader) extend(n int) int { return int(extended(r.take(n), n)) }

// symbol reads one Huffman code. Short codes are found in one table look-up, longer ones length by length.
func (r *bitReader) symbol(h *huffman) (int, error) {
	if r.n < 32 {
		r.refill()
	}
	if e := h.codes[r.acc>>(64-lookBits)]; e != 0 {
		r.acc <<= e & 63
		r.n -= uint(e & 63)
		return int(e >> 8), nil
	}
	for l := lookBits + 1; l <= 16; l++ {
		if code := int32(r.acc >> (64 - l)); code <= h.maxCode[l] {
			r.acc <<= l
			r.n -= uint(l)
			return int(h.values[code+h.offset[l]]), nil
		}
	}
	return 0, errJPEG
}

// nextRestart drops what is left before a restart marker, and the marker, which has the next number.
func (r *bitReader) nextRestart() error {
	if r.early() {
		return errEarly
	}
	r.n, r.acc, r.pad = 0, 0, 0
	for i := r.i; i+1 < len(r.b); i++ {
		if r.b[i] != 0xff || r.b[i+1] == 0 || r.b[i+1] == 0xff {
			continue
		}
		if r.b[i+1] != 0xd0+r.rst&7 {
			break
		}
		r.i, r.rst = i+2, r.rst+1
		return nil
	}
	return errors.New("a restart marker is missing")
}

// blockEnd moves a position behind the block.
const blockEnd = 64

// block is the coefficients of a block in natural order, and room for what is written behind its end.
type block [128]int16

// natural is zigzag, with a place behind the block for positions behind its end.
var natural = func() (n [128]byte) {
	for i := range n {
		n[i] = blockEnd
		if i < 64 {
			n[i] = byte(zigzag[i])
		}
	}
	return n
}()

// baseline reads a block; whole tells that its only coefficient is the first.
func (r *bitReader) baseline(c *block, dc, ac *huffman, pred *int) (whole bool, err error) {
	if r.n < 32 {
		r.refill()
	}
	if e := dc.whole[r.acc>>(64-lookBits)]; e != 0 {
		r.acc <<= e & 63
		r.n -= uint(e & 63)
		*pred += int(int16(e >> 16))
	} else {
		n, err := r.symbol(dc)
		if err != nil || n > sizeMax(true) {
			return false, errJPEG
		}
		*pred += r.extend(n)
	}
	c[0] = int16(*pred)
	k := 1
	for k < 64 {
		if k = r.run(c, ac, k); k >= 64 {
			break
		}
		if r.n < 32 {
			r.refill()
			continue
		}
		s, err := r.symbol(ac)
		if err != nil {
			return false, err
		}
		size := s & 15
		if size == 0 && s>>4 < 15 {
			k += blockEnd
			break
		}
		if size > sizeMax(false) {
			return false, errJPEG
		}
		k += s>>4 + 1
		c[natural[(k-1)&127]] = int16(r.extend(size))
	}
	if c[blockEnd] != 0 { // a number behind the block
		return false, errJPEG
	}
	return k == 1+blockEnd, nil
}

// run reads coefficients from position k on while their codes are in the table, and returns the position
// behind them. It also returns where under 32 bits are counted and more are to be had.
func (r *bitReader) run(c *block, ac *huffman, k int) int {
	if native && len(r.b) > 0 {
		return runCodes(&c[0], &ac.whole[0], &natural[0], &r.b[0], len(r.b), &r.i, &r.acc, &r.n, k)
	}
	for k < 64 && r.n >= 32 {
		e := ac.whole[r.acc>>(64-lookBits)]
		if e == 0 {
			break
		}
		r.acc <<= e & 63
		r.n -= uint(e & 63)
		k += int(e >> 8 & 255)
		c[natural[(k-1)&127]] = int16(e >> 16)
	}
	return k
}
