// Package webp decodes the two kinds of images in WebP files: VP8's key frames (RFC 6386) and VP8L (RFC
// 9649). Pixels are those of libwebp, bit for bit. The container around them is the caller's.
package webp

import (
	"encoding/binary"
	"errors"
	"io"
	"sync"
)

var errLossy = errors.New("the VP8 data is malformed")

// lossy is the state of decoding a frame.
type lossy struct {
	w, h     int
	mbw, mbh int // in macroblocks of 16×16 pixels

	first  boolReader    // headers and modes
	parts  [8]boolReader // coefficients, the rows of macroblocks in turn
	nParts int

	segments segments
	filter   filterHeader
	strength [4][2]strength // by segment, and whether the macroblock is of 4×4 blocks
	steps    [4]steps       // by segment
	probs    [planes][bands][3][11]byte
	at       [planes][17][3][11]byte // the same by position in a block; the assembly reads it
	skips    bool
	skipProb byte

	above []macroblock // those of the row above
	left  macroblock

	// the macroblock at hand
	segment   int
	whole     bool // luma is predicted at once, not in 4×4 blocks
	lumaMode  byte
	modes     [16]byte // of 4×4 blocks
	colorMode byte
	coef      [25 * 16]int16 // 16 blocks of luma, 4 and 4 of chroma, and one of constant terms
	dirty     bool           // coef is not all zero
	work      [workRows * workStride]byte
	strengths []strength // of the row's macroblocks

	y, u, v          plane
	lumaTop          []byte // the lowest row of the macroblocks above, before the filter, and 4 more
	uTop, vTop       []byte
	planesAndTopRows []byte // what they all lie in
}

// macroblock is what those to the right and below need to know of one.
type macroblock struct {
	modes [4]byte // of the lowest or rightmost 4×4 blocks
	// 1 where blocks have coefficients: 4 of luma, 2 and 2 of chroma, and that of constant terms
	filled [9]byte
}

// plane is one of the image's three. There are 16 bytes before each row and behind it.
type plane struct {
	pix    []byte
	stride int
	origin int
}

var lossyStates sync.Pool

// lossyKept is the size of the largest planes that are kept for the next image: 32 MiB.
const lossyKept = 32 << 20

// Lossy decodes a VP8 key frame of w×h pixels into dst, 3 bytes a pixel: red, green and blue.
// Another size than that of the frame is an error, as is data that is malformed or cut off.
func Lossy(b []byte, w, h int, dst []byte) error {
	d, ok := lossyStates.Get().(*lossy)
	if !ok {
		d = &lossy{}
	}
	err := d.decode(b, w, h, dst)
	d.first, d.parts = boolReader{}, [8]boolReader{}
	if len(d.planesAndTopRows) <= lossyKept {
		lossyStates.Put(d)
	}
	return err
}

// decode decodes a VP8 key frame into dst. The last line of a row is kept before the row is
// filtered, because the next row is predicted from unfiltered pixels.
func (d *lossy) decode(b []byte, w, h int, dst []byte) error {
	d.w, d.h = w, h
	if err := d.headers(b); err != nil {
		return err
	}
	d.allocate()
	for my := range d.mbh {
		d.left = macroblock{}
		for mx := range d.mbw {
			d.macroblock(mx, my)
		}
		if d.first.ended || d.parts[my&(d.nParts-1)].ended {
			return io.ErrUnexpectedEOF
		}
		d.keepTop(my)
		d.filterRow(my)
	}
	d.colours(dst)
	return nil
}

// headers reads what stands before the first macroblock (section 9).
func (d *lossy) headers(b []byte) error {
	if len(b) < 10 {
		return io.ErrUnexpectedEOF
	}
	tag := uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16
	if tag&1 != 0 || tag>>1&7 > 3 || tag>>4&1 == 0 || b[3] != 0x9d || b[4] != 0x01 || b[5] != 0x2a {
		return errLossy
	}
	if d.w != int(binary.LittleEndian.Uint16(b[6:])&0x3fff) || d.h != int(binary.LittleEndian.Uint16(b[8:])&0x3fff) {
		return errLossy
	}
	d.mbw, d.mbh = (d.w+15)/16, (d.h+15)/16
	size := int(tag >> 5)
	if b = b[10:]; size > len(b) {
		return io.ErrUnexpectedEOF
	}
	d.first = newBoolReader(b[:size])
	d.first.number(2) // colour space and clamping, which change nothing here
	d.readSegments()
	d.readFilter()
	if err := d.partitions(b[size:]); err != nil {
		return err
	}
	d.readSteps()
	d.first.flag() // whether later frames refer to this one
	d.readProbs()
	if d.skips = d.first.flag(); d.skips {
		d.skipProb = byte(d.first.number(8))
	}
	if d.first.ended {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// partitions takes the coefficients' data apart (section 9.5).
func (d *lossy) partitions(b []byte) error {
	d.nParts = 1 << d.first.number(2)
	sizes := 3 * (d.nParts - 1)
	if len(b) < sizes {
		return io.ErrUnexpectedEOF
	}
	head, rest := b[:sizes], b[sizes:]
	for i := range d.nParts {
		n := len(rest)
		if i < d.nParts-1 {
			n = int(head[3*i]) | int(head[3*i+1])<<8 | int(head[3*i+2])<<16
		}
		if n > len(rest) {
			return io.ErrUnexpectedEOF
		}
		d.parts[i] = newBoolReader(rest[:n])
		rest = rest[n:]
	}
	return nil
}

// readProbs reads new probabilities of coefficients (section 13.4).
func (d *lossy) readProbs() {
	d.probs = defaultProbs
	for i := range d.probs {
		for j := range d.probs[i] {
			for k := range d.probs[i][j] {
				for l := range d.probs[i][j][k] {
					if d.first.bit(updateProbs[i][j][k][l]) {
						d.probs[i][j][k][l] = byte(d.first.number(8))
					}
				}
			}
		}
		for n, band := range bandOf {
			d.at[i][n] = d.probs[i][band]
		}
	}
}

// allocate makes room for the planes.
func (d *lossy) allocate() {
	luma, chroma := 16*d.mbw+32, 8*d.mbw+32
	total := luma*16*d.mbh + 2*chroma*8*d.mbh + luma + 2*chroma
	if cap(d.planesAndTopRows) < total {
		d.planesAndTopRows = make([]byte, total)
	}
	rest := d.planesAndTopRows[:total]
	take := func(n int) (b []byte) {
		b, rest = rest[:n:n], rest[n:]
		return b
	}
	d.y = plane{take(luma * 16 * d.mbh), luma, 16}
	d.u = plane{take(chroma * 8 * d.mbh), chroma, 16}
	d.v = plane{take(chroma * 8 * d.mbh), chroma, 16}
	d.lumaTop, d.uTop, d.vTop = take(luma), take(chroma), take(chroma)
	if len(d.above) < d.mbw {
		d.above, d.strengths = make([]macroblock, d.mbw), make([]strength, d.mbw)
	}
	clear(d.above)
}

// keepTop keeps what the next row is predicted from, before the filter changes it.
func (d *lossy) keepTop(my int) {
	n := 16 * d.mbw
	copy(d.lumaTop[:n], d.y.pix[(16*my+15)*d.y.stride+d.y.origin:])
	copy(d.lumaTop[n:n+4], []byte{d.lumaTop[n-1], d.lumaTop[n-1], d.lumaTop[n-1], d.lumaTop[n-1]})
	copy(d.uTop[:n/2], d.u.pix[(8*my+7)*d.u.stride+d.u.origin:])
	copy(d.vTop[:n/2], d.v.pix[(8*my+7)*d.v.stride+d.v.origin:])
}
