package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/png"
	"io"
	"sync"

	"github.com/klauspost/compress/zlib"
)

// pngHeader is what IHDR says.
type pngHeader struct {
	w, h         int
	depth, color byte
	interlaced   bool
}

// pngFile is a PNG's header and deflated rows.
type pngFile struct {
	pngHeader
	data []io.Reader
	key  []byte // the transparent colour, or the alpha of a palette, if there is one
}

var (
	errPNG    = errors.New("the PNG data is malformed")
	errPNGSum = errors.New("a checksum of the PNG data is wrong")
)

// readPNG finds the parts of an image and checks their sums.
func readPNG(b []byte) (f pngFile, err error) {
	for b = b[8:]; len(b) >= 12; {
		n := uint64(binary.BigEndian.Uint32(b))
		if n+12 > uint64(len(b)) {
			break
		}
		kind, body := string(b[4:8]), b[8:8+n]
		if crc32.ChecksumIEEE(b[4:8+n]) != binary.BigEndian.Uint32(b[8+n:]) {
			return f, errPNGSum
		}
		switch kind {
		case "IHDR":
			if len(body) != 13 || f.w > 0 {
				return f, errPNG
			}
			f.pngHeader = pngHeader{w: int(binary.BigEndian.Uint32(body)),
				h: int(binary.BigEndian.Uint32(body[4:])), depth: body[8], color: body[9], interlaced: body[12] != 0}
		case "tRNS":
			f.key = body
		case "IDAT":
			f.data = append(f.data, bytes.NewReader(body))
		case "IEND":
			return f, nil
		}
		b = b[12+n:]
	}
	return f, io.ErrUnexpectedEOF
}

// pngChannels are the bytes of a pixel of each kind that is read here.
var pngChannels = map[byte]int{0: 1, 2: 3, 6: 4}

var inflaters sync.Pool

// decodePNG decodes the frequent kinds, 8 bits of grey, RGB or RGBA in rows, at once. Others go through Go's decoder.
func decodePNG(b []byte, white bool) (*Image, error) {
	f, err := readPNG(b)
	if err != nil {
		return nil, err
	}
	n := pngChannels[f.color]
	if f.depth != 8 || f.interlaced || f.key != nil || n == 0 {
		if f.depth == 16 && f.color == 0 && f.key != nil {
			return f.greyKey(b, white)
		}
		m, err := png.Decode(bytes.NewReader(b))
		if err != nil {
			return nil, err
		}
		return toRGB(m, f.w, f.h, white), nil
	}
	size := (1 + n*f.w) * f.h
	rows := buffers.take(size + slack)
	defer buffers.give(rows)
	if err := f.inflate(rows[:size]); err != nil {
		return nil, err
	}
	out := bare(f.w, f.h)
	if !f.unfilter(out, rows, n, white) {
		out.Release()
		return nil, errPNG
	}
	return out, nil
}

// unfilter takes the filters of rows back and puts their pixels into an image. It returns false for a filter
// that there is none of. There is slack behind the rows.
func (f *pngFile) unfilter(out *Image, rows []byte, n int, white bool) bool {
	line := n * f.w
	none := buffers.take(line + slack)
	defer buffers.give(none)
	clear(none)
	above := none
	for y := range f.h {
		row := rows[y*(1+line):]
		kind, row := row[0], row[1:]
		to := out.Pix[y*f.w*3:]
		if kind > 4 {
			return false
		}
		if !native || n == 1 {
			unfilterRow(kind, row[:line], above, n)
			above = row
			pngRow(to, row[:line], n, white)
			continue
		}
		here := to[:line:cap(to)]
		if n == 4 { // alpha goes only after the filter
			here = row
		}
		unfilterNative(kind, here, row, above, f.w, n)
		if above = here; n == 4 {
			pngRow(to, row[:line], n, white)
		}
	}
	return true
}

// unfilterNative is unfilterRow with a place for the pixels, which may be the row's own, and their number.
func unfilterNative(kind byte, to, row, above []byte, pixels, n int) {
	switch kind {
	case 0:
		if n == 3 {
			copy(to[:3*pixels], row)
		}
	case 1:
		unfilterSub(&to[0], &row[0], &above[0], pixels, n)
	case 2:
		whole := n * pixels / 32
		unfilterUp(&to[0], &row[0], &above[0], whole)
		for i := whole * 32; i < n*pixels; i++ {
			to[i] = row[i] + above[i]
		}
	case 3:
		unfilterMean(&to[0], &row[0], &above[0], pixels, n)
	default:
		unfilterPaeth(&to[0], &row[0], &above[0], pixels, n)
	}
}

// greyKey decodes 16 bits of grey of which one is transparent: as Pillow does, by way of the same kind of
// image as without it.
func (f *pngFile) greyKey(b []byte, white bool) (*Image, error) {
	plain := append([]byte(nil), b[:8]...)
	for b = b[8:]; len(b) >= 12; {
		n := 12 + int(binary.BigEndian.Uint32(b))
		if string(b[4:8]) != "tRNS" {
			plain = append(plain, b[:n]...)
		}
		if string(b[4:8]) == "IEND" {
			break
		}
		b = b[n:]
	}
	m, err := png.Decode(bytes.NewReader(plain))
	if err != nil {
		return nil, err
	}
	p := toRGB(m, f.w, f.h, white)
	grey, ok := m.(*image.Gray16)
	if !ok || len(f.key) != 2 {
		return nil, errPNG
	}
	for i := 0; white && i < f.w*f.h; i++ {
		if grey.Gray16At(i%f.w, i/f.w).Y == binary.BigEndian.Uint16(f.key) {
			copy(p.Pix[3*i:], []byte{255, 255, 255})
		}
	}
	return p, nil
}

// inflate fills rows, behind which nothing may follow.
func (f *pngFile) inflate(rows []byte) (err error) {
	in := io.MultiReader(f.data...)
	z, ok := inflaters.Get().(io.ReadCloser)
	if ok {
		err = z.(zlib.Resetter).Reset(in, nil)
	} else {
		z, err = zlib.NewReader(in)
	}
	if err != nil {
		return err
	}
	defer inflaters.Put(z)
	if _, err := io.ReadFull(z, rows); err != nil {
		return err
	}
	if n, err := z.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return errPNG
	}
	return nil
}

// pngRow turns a row's samples into RGB.
func pngRow(out, in []byte, n int, white bool) {
	switch n {
	case 1:
		for x, v := range in {
			out[x*3], out[x*3+1], out[x*3+2] = v, v, v
		}
	case 3:
		copy(out, in)
	default:
		if pixels := len(in) / 4; native && !white && pixels > 8 {
			whole := (pixels - 2) / 8
			dropAlpha(&out[0], &in[0], whole)
			out, in = out[24*whole:], in[32*whole:]
		}
		for x := 0; x+3 < len(in); x += 4 {
			c := [4]byte(in[x:])
			if white && c[3] < 255 {
				c = onWhite(c)
			}
			to := out[x/4*3:][:3]
			to[0], to[1], to[2] = c[0], c[1], c[2]
		}
	}
}

// unfilterRow adds to each byte of a row what was taken away: that of the pixel before (1), the one above
// (2), the mean of both (3), or whichever is nearest to what they make likely (4).
func unfilterRow(kind byte, row, above []byte, n int) {
	above = above[:len(row)]
	switch kind {
	case 1:
		for i := n; i < len(row); i++ {
			row[i] += row[i-n]
		}
	case 2:
		for i, v := range above {
			row[i] += v
		}
	case 3:
		for i, v := range above {
			left := 0
			if i >= n {
				left = int(row[i-n])
			}
			row[i] += byte((left + int(v)) / 2)
		}
	case 4:
		for c := range n {
			paeth(row[c:], above[c:], n)
		}
	}
}

// paeth restores one channel. The nearest of left, above and across counts, in this order.
func paeth(row, above []byte, n int) {
	left, across := int32(0), int32(0)
	for i := 0; i < len(row) && i < len(above); i += n {
		up := int32(above[i])
		dl, du := up-across, left-across // distances of left and above from left + above - across
		d := dl + du
		dl, du, d = max(dl, -dl), max(du, -du), max(d, -d)
		nearest := across
		if du <= d {
			nearest = up
		}
		if dl <= du && dl <= d {
			nearest = left
		}
		left, across = int32(byte(nearest)+row[i]), up
		row[i] = byte(left)
		left &= 255
	}
}
