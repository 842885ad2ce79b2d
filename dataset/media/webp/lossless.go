package webp

import (
	"errors"
	"io"
	"sync"
)

var errLossless = errors.New("the VP8L data is malformed")

// lossless reads a VP8L image (RFC 9649, section 3).
type lossless struct {
	bitReader
	w, h    int
	lengths [maxSymbols]byte
	sorted  [maxSymbols]uint16
}

// images lends images of pixels.
var images sync.Pool

// imageKept is how many pixels the largest image has that is kept for the next: 32 MiB of them.
const imageKept = 8 << 20

// Release takes back an image for the next ones. It must not be used afterwards.
func Release(pix []uint32) {
	if cap(pix) <= imageKept {
		images.Put(&pix)
	}
}

// bare returns an image of any content.
func bare(n int) []uint32 {
	if p, ok := images.Get().(*[]uint32); ok && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]uint32, n)
}

// Lossless decodes a VP8L image of w×h pixels; a pixel has from the highest byte down alpha, red, green and
// blue. Another size than that of the image is an error, as is data that is malformed or cut off. Release
// takes the pixels back.
func Lossless(b []byte, w, h int) ([]uint32, error) {
	if len(b) < 5 || b[0] != 0x2f {
		return nil, errLossless
	}
	head := uint32(b[1]) | uint32(b[2])<<8 | uint32(b[3])<<16 | uint32(b[4])<<24
	if head>>29 != 0 || int(head&0x3fff)+1 != w || int(head>>14&0x3fff)+1 != h {
		return nil, errLossless
	}
	return LosslessBody(b[5:], w, h)
}

// LosslessBody decodes what follows on the header of a VP8L image, as alpha has it.
func LosslessBody(b []byte, w, h int) ([]uint32, error) {
	d := &lossless{bitReader: bitReader{b: b}, w: w, h: h}
	transforms, err := d.transforms()
	if err != nil {
		return nil, err
	}
	pix, err := d.image(d.w, d.h, true)
	if err != nil {
		return nil, err
	}
	return undo(transforms, pix, h), nil
}

// bitReader reads bits from the lowest of each byte up.
type bitReader struct {
	b     []byte
	i     int    // of the next byte
	value uint64 // the next bits, from the lowest up
	n     int    // of them are counted; others may follow, that are read again. Under 0 the data has ended.
}

// fill counts 56 bits or more, if there are so many.
func (r *bitReader) fill() {
	if r.i+8 <= len(r.b) && r.n >= 0 {
		r.value |= little(r.b[r.i:]) << uint(r.n&63)
		r.i += (63 - r.n) >> 3
		r.n |= 56
		return
	}
	for ; r.n >= 0 && r.n <= 56 && r.i < len(r.b); r.i++ {
		r.value |= uint64(r.b[r.i]) << uint(r.n&63)
		r.n += 8
	}
}

// bits reads n of them, at most 32.
func (r *bitReader) bits(n int) int {
	if r.n < n {
		r.fill()
	}
	v := r.value & (1<<uint(n&63) - 1)
	r.value >>= uint(n & 63)
	r.n -= n
	return int(v)
}

func (r *bitReader) flag() bool { return r.bits(1) == 1 }

// symbol reads one of a code.
func (r *bitReader) symbol(t []uint32) int {
	if r.n < longestCode {
		r.fill()
	}
	e := t[r.value&(1<<rootBits-1)]
	if e&0xff > rootBits {
		e = t[e>>8+uint32(r.value>>rootBits)&(1<<(e&0xff-rootBits)-1)]
	}
	r.value >>= e & 15
	r.n -= int(e & 15)
	return int(e >> 8)
}

// err tells that more was read than there is.
func (r *bitReader) err() error {
	if r.n < 0 {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// image reads an image of pixels, the whole one or one of a transform's or of the codes' numbers.
func (d *lossless) image(w, h int, top bool) ([]uint32, error) {
	var cache colorCache
	if d.flag() {
		n := d.bits(4)
		if n < 1 || n > 11 {
			return nil, errLossless
		}
		cache = colorCache{make([]uint32, 1<<n), 32 - uint(n)}
	}
	g, err := d.groups(w, h, top, len(cache.pix))
	if err == nil {
		err = d.err()
	}
	if err != nil {
		return nil, err
	}
	pix := bare(w * h)
	if err := d.pixels(pix, w, g, &cache); err != nil {
		Release(pix)
		return nil, err
	}
	return pix, nil
}

// colorCache has pixels by a hash of them.
type colorCache struct {
	pix   []uint32
	shift uint
}

// insert enters pixels under their hash, of which later codes can name them.
func (c *colorCache) insert(pix []uint32) {
	shift, to := c.shift&31, c.pix
	for _, v := range pix {
		if i := v * 0x1e35a7bd >> shift; int(i) < len(to) {
			to[i] = v
		}
	}
}

// group is the codes of an area: of green, lengths and the cache, of red, blue and alpha, and of distances.
type group struct {
	codes [5][]uint32
	alpha uint32 // where all have one alpha
	plain bool   // all have one alpha
}

// groups are the codes of an image, and which of them each of its tiles has.
type groups struct {
	all   []group
	tiles []uint32 // nil: there is one group
	bits  int      // of a tile's side
	row   int      // tiles a row
}

// groupsMax is how many groups an image may have: libwebp writes 2600 at most, and each may take some KiB.
const groupsMax = 2600

// groups reads the Huffman codes. The image may have several groups of them, chosen per tile by an image of numbers.
func (d *lossless) groups(w, h int, top bool, cached int) (g groups, err error) {
	n := 1
	if top && d.flag() {
		g.bits = d.bits(3) + 2
		g.row = tilesOf(w, g.bits)
		if g.tiles, err = d.image(g.row, tilesOf(h, g.bits), false); err != nil {
			return g, err
		}
		for i, v := range g.tiles {
			g.tiles[i] = v >> 8 & 0xffff
			n = max(n, int(g.tiles[i])+1)
		}
		if n > groupsMax {
			return g, errors.New("the VP8L image has too many codes")
		}
	}
	used := make([]bool, n)
	used[0] = g.tiles == nil
	for _, v := range g.tiles {
		used[v] = true
	}
	g.all = make([]group, n)
	for i := range g.all {
		if err := d.group(&g.all[i], cached, used[i]); err != nil {
			return g, err
		}
	}
	return g, nil
}

// group reads the codes of a group; if it is not used nothing is kept of them.
func (d *lossless) group(g *group, cached int, used bool) (err error) {
	for i, n := range [5]int{256 + 24 + cached, 256, 256, 256, 40} {
		if g.codes[i], err = d.code(n, used); err != nil {
			return err
		}
	}
	if used {
		if e := g.codes[3][0]; e&0xff == 0 {
			g.plain, g.alpha = true, e>>8<<24
		}
	}
	return nil
}

func tilesOf(n, bits int) int { return (n + 1<<bits - 1) >> bits }
