package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
)

// plane is one colour component of a JPEG.
type plane struct {
	id, h, v, quant int
	w, rows         int      // samples that count
	bw, bh          int      // blocks, padded to whole MCUs
	coef            []int16  // of a progressive image: 64 a block, in natural order
	set             []uint64 // the bits of a block's coefficients, in the file's order, that are not zero
	// of the coefficients, in natural order, as they are at the component's first scan
	weights [64]int16
	latched bool
	// by coefficient in the file's order: low bits that no scan has brought, -1 for nothing at all
	known  [guessed]int8
	dc, ac int // Huffman tables of the current scan
	pred   int
	pix    []byte // rows of stride bytes that begin at margin
	stride int
}

// margin is the room before and behind a plane's rows: what is smoothed reads over their ends.
const margin = 32

// row returns a row of samples and what lies behind it.
func (p *plane) row(y int) []byte { return p.pix[y*p.stride+margin:] }

// jpegReader decodes baseline and progressive JPEG as libjpeg-turbo does by default: accurate integer IDCT,
// smooth ("fancy") chroma, the same colour tables. Source: ITU-T T.81.
type jpegReader struct {
	b           []byte
	w, h        int
	progressive bool
	planes      []*plane
	hmax, vmax  int
	quant       [4][64]int16
	huff        [2][4]*huffman // DC and AC
	restart     int
	scans       int
	adobe       int // transform, -1 without an Adobe marker
	jfif        bool
	bits        bitReader
	pair        pair
	scan
}

// scan is what a scan header says of its progression.
type scan struct{ ss, se, ah, al, eobrun int }

// scansMax bounds the passes over a progressive image; encoders make about ten.
const scansMax = 100

var errJPEG = errors.New("the JPEG data is malformed")

// zigzag maps the order of the file to the natural order of coefficients.
var zigzag = [64]int{0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20,
	13, 6, 7, 14, 21, 28, 35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39,
	46, 53, 60, 61, 54, 47, 55, 62, 63}

// jpegConfig reads the size of an image.
func jpegConfig(b []byte) (c image.Config, err error) {
	for r := (&jpegReader{b: b[2:]}); ; {
		marker, body, err := r.segment()
		switch {
		case err != nil:
			return c, err
		case marker == 0xd9 || marker == 0xda:
			return c, errors.New("no size comes before the image")
		case marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc:
			if len(body) < 6 {
				return c, errJPEG
			}
			c.Height, c.Width = int(binary.BigEndian.Uint16(body[1:])), int(binary.BigEndian.Uint16(body[3:]))
			return c, nil
		}
	}
}

// decodeJPEG decodes an image whose header was checked for size.
func decodeJPEG(b []byte) (*Image, error) {
	r := &jpegReader{b: b[2:], adobe: -1}
	defer r.release()
	for {
		marker, body, err := r.segment()
		if err != nil {
			return nil, err
		}
		if marker == 0xd9 {
			return r.image()
		}
		if err := r.take(marker, body); err != nil {
			return nil, fmt.Errorf("marker %02x: %w", marker, err)
		}
	}
}

// segment returns the next marker and its content.
func (r *jpegReader) segment() (marker byte, body []byte, err error) {
	i := bytes.IndexByte(r.b, 0xff)
	for i >= 0 && i+1 < len(r.b) && (r.b[i+1] == 0xff || r.b[i+1] == 0) {
		i++
		if r.b[i] == 0 {
			next := bytes.IndexByte(r.b[i:], 0xff)
			if next < 0 {
				i = -1
				break
			}
			i += next
		}
	}
	if i < 0 || i+2 > len(r.b) {
		return 0, nil, errors.New("the image is cut off")
	}
	marker, r.b = r.b[i+1], r.b[i+2:]
	if marker == 0xd9 || marker >= 0xd0 && marker <= 0xd8 || marker == 1 {
		return marker, nil, nil
	}
	if len(r.b) < 2 {
		return 0, nil, errors.New("the image is cut off")
	}
	n := int(binary.BigEndian.Uint16(r.b))
	if n < 2 || n > len(r.b) {
		return 0, nil, errors.New("the image is cut off")
	}
	body, r.b = r.b[2:n], r.b[n:]
	return marker, body, nil
}

// take handles one segment of the file, by its marker. Those that do not bear on the pixels are passed over.
func (r *jpegReader) take(marker byte, body []byte) error {
	switch {
	case marker >= 0xc0 && marker <= 0xc2:
		r.progressive = marker == 0xc2
		return r.frame(body)
	case marker == 0xc4:
		return r.huffmans(body)
	case marker >= 0xc3 && marker <= 0xcf && marker != 0xc8 && marker != 0xcc:
		return errors.New("the kind of JPEG is neither baseline nor progressive")
	case marker == 0xdb:
		return r.quants(body)
	case marker == 0xdd && len(body) == 2:
		r.restart = int(binary.BigEndian.Uint16(body))
	case marker == 0xda:
		return r.scanData(body)
	case marker == 0xe0 && bytes.HasPrefix(body, []byte("JFIF\x00")):
		r.jfif = true
	case marker == 0xee && len(body) >= 12 && bytes.HasPrefix(body, []byte("Adobe")):
		r.adobe = int(body[11])
	}
	return nil
}

// frame reads the image's size and components. Memory for them is taken only where the file could fill it:
// a block takes a bit at least.
func (r *jpegReader) frame(b []byte) error {
	if len(b) < 6 || b[0] != 8 || r.planes != nil || len(b) != 6+3*int(b[5]) || b[5] == 0 || b[5] == 2 || b[5] > 4 {
		return errJPEG
	}
	r.h, r.w = int(binary.BigEndian.Uint16(b[1:])), int(binary.BigEndian.Uint16(b[3:]))
	for c := b[6:]; len(c) > 0; c = c[3:] {
		p := &plane{id: int(c[0]), h: int(c[1] >> 4), v: int(c[1] & 15), quant: int(c[2])}
		for k := range p.known {
			p.known[k] = -1
		}
		if p.h < 1 || p.h > 4 || p.v < 1 || p.v > 4 || p.quant > 3 {
			return errJPEG
		}
		r.hmax, r.vmax = max(r.hmax, p.h), max(r.vmax, p.v)
		r.planes = append(r.planes, p)
	}
	mw, mh, blocks := over(r.w, 8*r.hmax), over(r.h, 8*r.vmax), 0
	for _, p := range r.planes {
		p.w, p.rows = over(r.w*p.h, r.hmax), over(r.h*p.v, r.vmax)
		p.bw, p.bh = mw*p.h, mh*p.v
		if blocks += over(p.w, 8) * over(p.rows, 8); blocks > 8*len(r.b)+64 {
			return fmt.Errorf("%d×%d pixels are more than can be in it", r.w, r.h)
		}
		if r.progressive {
			p.coef, p.set = make([]int16, p.bw*p.bh*64), make([]uint64, p.bw*p.bh)
		}
		p.stride = p.bw*8 + 2*margin
		p.pix = buffers.take(p.stride * p.bh * 8)
	}
	return nil
}

func over(a, b int) int { return (a + b - 1) / b }

// quants reads tables of quantization, of 8 or 16 bits, in zigzag order.
func (r *jpegReader) quants(b []byte) error {
	for len(b) > 0 {
		wide, id := b[0]>>4, b[0]&15
		n := 64 * (1 + int(wide))
		if id > 3 || wide > 1 || len(b) < 1+n {
			return errJPEG
		}
		for i := range 64 {
			if wide == 0 {
				r.quant[id][zigzag[i]] = int16(b[1+i])
			} else {
				r.quant[id][zigzag[i]] = int16(binary.BigEndian.Uint16(b[1+2*i:]))
			}
		}
		b = b[1+n:]
	}
	return nil
}

// huffmans reads tables of Huffman codes, for the first coefficient of a block or for the others.
func (r *jpegReader) huffmans(b []byte) error {
	for len(b) > 0 {
		if len(b) < 17 || b[0]>>4 > 1 || b[0]&15 > 3 {
			return errJPEG
		}
		h, n, err := newHuffman(b[1:], b[0]>>4 == 0)
		if err != nil {
			return err
		}
		r.huff[b[0]>>4][b[0]&15] = h
		b = b[1+n:]
	}
	return nil
}

// scanData decodes one scan.
func (r *jpegReader) scanData(b []byte) error {
	if len(b) < 1 || r.planes == nil || len(b) != 4+2*int(b[0]) || b[0] < 1 || b[0] > 4 {
		return errJPEG
	}
	if r.scans++; r.scans > scansMax {
		return fmt.Errorf("it has over %d scans", scansMax)
	}
	var in []*plane
	for c := b[1 : 1+2*int(b[0])]; len(c) > 0; c = c[2:] {
		for _, p := range r.planes {
			if p.id == int(c[0]) {
				p.dc, p.ac, p.pred = int(c[1]>>4)&3, int(c[1]&15)&3, 0
				in = append(in, p)
			}
		}
	}
	t := b[len(b)-3:]
	r.scan = scan{ss: int(t[0]), se: int(t[1]), ah: int(t[2] >> 4), al: int(t[2] & 15)}
	if !r.progressive {
		r.scan = scan{se: 63}
	}
	if len(in) != int(b[0]) || r.se > 63 || r.ss > r.se || r.al > 13 || r.progressive &&
		(r.ss == 0) != (r.se == 0) || r.ss > 0 && len(in) > 1 {
		return errJPEG
	}
	if err := r.latch(in); err != nil {
		return err
	}
	r.bits = bitReader{b: r.b}
	err := r.units(in)
	r.b = r.b[r.bits.i:]
	return err
}

// latch takes the tables that hold at the beginning of a scan.
func (r *jpegReader) latch(in []*plane) error {
	for _, p := range in {
		needsDC, needsAC := r.ss == 0 && r.ah == 0, r.se > 0
		if needsDC && r.huff[0][p.dc] == nil || needsAC && r.huff[1][p.ac] == nil {
			return errors.New("a Huffman table is missing")
		}
		if !p.latched {
			p.weights, p.latched = r.quant[p.quant], true
		}
		for k := r.ss; k <= min(r.se, guessed-1); k++ {
			p.known[k] = int8(r.al)
		}
	}
	return nil
}

// units decodes the blocks of a scan: of one component row by row, of several MCU by MCU.
func (r *jpegReader) units(in []*plane) error {
	w, h := over(r.w, 8*r.hmax), over(r.h, 8*r.vmax)
	alone := len(in) == 1
	if alone {
		w, h = over(in[0].w, 8), over(in[0].rows, 8)
	}
	for n := range w * h {
		if r.restart > 0 && n > 0 && n%r.restart == 0 {
			if err := r.bits.nextRestart(); err != nil {
				return err
			}
			r.eobrun = 0
			for _, p := range in {
				p.pred = 0
			}
		}
		x, y := n%w, n/w
		for _, p := range in {
			count, px, py := p.h*p.v, x*p.h, y*p.v
			if alone {
				count, px, py = 1, x, y
			}
			for k := range count {
				if err := r.block(p, px+k%p.h, py+k/p.h); err != nil {
					return err
				}
			}
		}
	}
	r.pair.flush()
	if r.bits.early() {
		return errEarly
	}
	if r.bits.late() {
		return errLate
	}
	return nil
}

// firstMax bounds a block's first coefficient, eight times its mean: samples of 8 bits give 1024 and rounding by
// a weight of 255 half as much again. Beyond it only damage goes, where libraries differ in how sums overflow.
const firstMax = 4096

func abs(x int) int { return max(x, -x) }

// block decodes one block of a scan: of a baseline image to pixels.
func (r *jpegReader) block(p *plane, x, y int) error {
	if r.progressive {
		return r.part(p, x, y)
	}
	c := r.pair.next()
	whole, err := r.bits.baseline(c, r.huff[0][p.dc], r.huff[1][p.ac], &p.pred)
	if err == nil && abs(p.pred)*int(p.weights[0]) > firstMax {
		err = errJPEG
	}
	if err == nil {
		r.pair.put(p, x, y, whole)
	}
	return err
}
