package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"

	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"
)

var errWebP = errors.New("the WebP data is malformed or cut off")

// webpFile is a still WebP image, or the first frame of an animation.
type webpFile struct {
	w, h      int // canvas
	x, y      int // of the frame on it
	fw, fh    int // frame
	alpha     []byte
	vp8, vp8l []byte
	extended  bool
}

// chunks calls f with the chunks of a RIFF list until it returns false.
func chunks(b []byte, f func(id string, body []byte) (bool, error)) error {
	for len(b) >= 8 {
		id, n := string(b[:4]), uint64(binary.LittleEndian.Uint32(b[4:]))
		if b = b[8:]; n > uint64(len(b)) {
			return errWebP
		}
		more, err := f(id, b[:n])
		if err != nil || !more {
			return err
		}
		b = b[min(n+n%2, uint64(len(b))):]
	}
	return nil
}

// readWebP finds the parts of an image, and checks that their sizes agree.
func readWebP(b []byte) (f webpFile, err error) {
	if len(b) < 12 || uint64(binary.LittleEndian.Uint32(b[4:]))+8 > uint64(len(b)) {
		return f, errWebP
	}
	err = chunks(b[12:binary.LittleEndian.Uint32(b[4:])+8], func(id string, body []byte) (bool, error) {
		switch {
		case id == "VP8X" && len(body) >= 10 && !f.extended:
			f.extended = true
			f.w, f.h = 1+int(uint24(body[4:])), 1+int(uint24(body[7:]))
			f.fw, f.fh = f.w, f.h
		case id == "ANMF" && len(body) >= 16 && f.extended && f.vp8 == nil && f.vp8l == nil:
			f.x, f.y = 2*int(uint24(body)), 2*int(uint24(body[3:]))
			f.fw, f.fh = 1+int(uint24(body[6:])), 1+int(uint24(body[9:]))
			return true, chunks(body[16:], f.part)
		default:
			return f.part(id, body)
		}
		return true, nil
	})
	if err == nil {
		err = f.check()
	}
	return f, err
}

// part takes a chunk of pixels. The first counts.
func (f *webpFile) part(id string, body []byte) (bool, error) {
	if f.vp8 != nil || f.vp8l != nil {
		return true, nil
	}
	switch id {
	case "ALPH":
		f.alpha = body
	case "VP8 ":
		f.vp8 = body
	case "VP8L":
		f.vp8l, f.alpha = body, nil
	}
	return true, nil
}

// check compares the sizes of the container with that of the pixels.
func (f *webpFile) check() error {
	w, h := 0, 0
	switch {
	case len(f.vp8) >= 10 && f.vp8[0]&1 == 0:
		w, h = int(binary.LittleEndian.Uint16(f.vp8[6:])&0x3fff), int(binary.LittleEndian.Uint16(f.vp8[8:])&0x3fff)
	case len(f.vp8l) >= 5 && f.vp8l[0] == 0x2f:
		v := binary.LittleEndian.Uint32(f.vp8l[1:])
		w, h = int(v&0x3fff)+1, int(v>>14&0x3fff)+1
	default:
		return errWebP
	}
	if !f.extended {
		f.w, f.h, f.fw, f.fh = w, h, w, h
	}
	if w != f.fw || h != f.fh || f.x+w > f.w || f.y+h > f.h {
		return fmt.Errorf("a frame of %d×%d pixels does not fit the %d×%d that the WebP file announces", w, h, f.w, f.h)
	}
	return nil
}

func uint24(b []byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }

func webpConfig(b []byte) (image.Config, error) {
	f, err := readWebP(b)
	return image.Config{Width: f.w, Height: f.h}, err
}

// decodeWebP decodes as libwebp does; where a frame leaves the canvas free it is transparent black.
func decodeWebP(b []byte, white bool) (*Image, error) {
	f, err := readWebP(b)
	if err != nil {
		return nil, err
	}
	out := bare(f.fw, f.fh)
	if f.vp8l != nil {
		var pix []byte
		if pix, err = lossless(f.vp8l, f.fw, f.fh); err == nil {
			pngRow(out.Pix, pix, 4, white)
		}
	} else if err = f.lossy(out); err == nil && f.alpha != nil {
		err = f.withAlpha(out, white)
	}
	if err != nil {
		out.Release()
		return nil, err
	}
	return f.placed(out, white), nil
}

// placed returns a frame on its canvas.
func (f *webpFile) placed(m *Image, white bool) *Image {
	if f.fw == f.w && f.fh == f.h {
		return m
	}
	out := NewImage(f.w, f.h)
	if white {
		for i := range out.Pix {
			out.Pix[i] = 255
		}
	}
	for y := range f.fh {
		copy(out.Pix[3*((f.y+y)*f.w+f.x):], m.Pix[y*3*f.fw:][:f.fw*3])
	}
	m.Release()
	return out
}

// lossless decodes a VP8L image of w×h pixels: red, green, blue and alpha of each. Its size is checked before, by check.
func lossless(b []byte, w, h int) ([]byte, error) {
	m, err := vp8l.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	p, ok := m.(*image.NRGBA)
	if !ok || p.Rect.Dx() != w || p.Rect.Dy() != h || p.Stride != 4*w {
		return nil, errWebP
	}
	return p.Pix, nil
}

// lossy decodes a VP8 key frame.
func (f *webpFile) lossy(out *Image) error {
	d := vp8.NewDecoder()
	d.Init(bytes.NewReader(f.vp8), len(f.vp8))
	if _, err := d.DecodeFrameHeader(); err != nil {
		return err
	}
	m, err := d.DecodeFrame()
	if err != nil {
		return err
	}
	smoothChroma(out, m)
	return nil
}

// smoothChroma turns planes into pixels as libwebp does: each takes nine, three, three and one sixteenths of the four
// nearest samples of chroma, in two roundings. The outermost samples go on.
func smoothChroma(out *Image, m *image.YCbCr) {
	cw, ch := (out.W+1)/2, (out.H+1)/2
	for y := range out.H {
		near := y / 2
		far := min(max(near+y%2*2-1, 0), ch-1)
		cb, cbFar := m.Cb[near*m.CStride:][:cw], m.Cb[far*m.CStride:][:cw]
		cr, crFar := m.Cr[near*m.CStride:][:cw], m.Cr[far*m.CStride:][:cw]
		to := out.Pix[3*y*out.W:][:3*out.W]
		for x, luma := range m.Y[y*m.YStride:][:out.W] {
			i := x / 2
			j := min(max(i+x%2*2-1, 0), cw-1)
			u, v := mixed(cb[i], cb[j], cbFar[i], cbFar[j]), mixed(cr[i], cr[j], crFar[i], crFar[j])
			l := int(luma) * 19077 >> 8
			to[3*x] = clip6(l + v*26149>>8 - 14234)
			to[3*x+1] = clip6(l - u*6419>>8 - v*13320>>8 + 8708)
			to[3*x+2] = clip6(l + u*33050>>8 - 17685)
		}
	}
}

// mixed weighs the nearest sample, its neighbours of the row and of the column, and the one across.
func mixed(near, row, column, across byte) int {
	n, r, c, a := int(near), int(row), int(column), int(across)
	return ((n+r+c+a+8+2*(r+c))>>3 + n) >> 1
}

func clip6(v int) byte { return byte(min(max(v, 0), 255<<6+63) >> 6) }

// withAlpha decodes the alpha chunk, plain or as a lossless image's green, and filtered, and lays the image on white.
func (f *webpFile) withAlpha(m *Image, white bool) error {
	if len(f.alpha) < 1 {
		return errWebP
	}
	kind, b := f.alpha[0], f.alpha[1:]
	plane := make([]byte, f.fw*f.fh)
	switch kind & 3 {
	case 0:
		if len(b) < len(plane) {
			return errWebP
		}
		copy(plane, b)
	case 1:
		head := binary.LittleEndian.AppendUint32([]byte{0x2f}, uint32(f.fw-1)|uint32(f.fh-1)<<14)
		pix, err := lossless(append(head, b...), f.fw, f.fh)
		if err != nil {
			return err
		}
		for i := range plane {
			plane[i] = pix[4*i+1]
		}
	default:
		return errWebP
	}
	unfilter(plane, f.fw, kind>>2&3)
	for i, a := range plane {
		if white && a < 255 {
			c := onWhite([4]byte{m.Pix[3*i], m.Pix[3*i+1], m.Pix[3*i+2], a})
			copy(m.Pix[3*i:], c[:3])
		}
	}
	return nil
}

// unfilter adds to each sample what was taken away: the left one (1), the one above (2), or what both and
// the one between them make likely (3). Where one is missing the other counts, and nothing at the first.
func unfilter(p []byte, w int, kind byte) {
	if kind == 0 {
		return
	}
	for i := range p {
		x, y := i%w, i/w
		switch {
		case x == 0 && y == 0:
		case y == 0 || kind == 1 && x > 0:
			p[i] += p[i-1]
		case x == 0 || kind == 2:
			p[i] += p[i-w]
		default:
			p[i] += clip(int32(p[i-1]) + int32(p[i-w]) - int32(p[i-w-1]))
		}
	}
}
