package media

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"
)

// PixelsMax is the largest picture that Decode takes where the caller names no limit: Pillow's own, 89,478,485 pixels.
const PixelsMax = 1024 * 1024 * 1024 / 4 / 3

// deflateRatioMax is the most bytes that a compressed byte of a PNG can stand for.
const deflateRatioMax = 1032

// Options of Decode.
type Options struct {
	PixelsMax int64 // of the picture; 0 means PixelsMax
	Turn      bool  // turn and mirror the picture as its EXIF orientation says, as Pillow's ImageOps.exif_transpose
}

// container is a file format of pictures, told by its first bytes: names lie.
type container struct {
	name   string
	is     func(b []byte) bool
	config func(r io.Reader) (image.Config, error)
	decode func(r io.Reader) (image.Image, error) // nil: decodeJPEG
}

var containers = []container{
	{"JPEG", func(b []byte) bool { return bytes.HasPrefix(b, []byte("\xff\xd8\xff")) }, jpeg.DecodeConfig, nil},
	{"PNG", func(b []byte) bool { return bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")) }, png.DecodeConfig, png.Decode},
	{"GIF", func(b []byte) bool { return bytes.HasPrefix(b, []byte("GIF8")) }, gif.DecodeConfig, gif.Decode},
	{"WebP", func(b []byte) bool {
		return len(b) > 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP"
	}, webp.DecodeConfig, webp.Decode},
}

// Decode returns a picture as RGB, as Pillow's convert("RGB") does: alpha is dropped, grey is repeated, 16-bit grey is cut
// off at 255 (Pillow's "I;16") and 16-bit colours keep their high bytes. The first frame of a GIF counts. The size is
// checked before anything of it is allocated. JPEG, PNG, GIF and lossless WebP are exact; the
// colours of lossy WebP are those of Go's decoder, which smooths chroma less than libwebp does.
func Decode(b []byte, o Options) (*Picture, error) {
	for _, c := range containers {
		if c.is(b) {
			p, err := c.read(b, o)
			if err != nil {
				return nil, fmt.Errorf("%s picture of %d bytes: %w", c.name, len(b), err)
			}
			return p, nil
		}
	}
	return nil, fmt.Errorf("%d bytes that begin with %q are no JPEG, PNG, GIF or WebP picture", len(b), b[:min(len(b), 8)])
}

func (c *container) read(b []byte, o Options) (*Picture, error) {
	size, err := c.config(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	limit := o.PixelsMax
	if limit == 0 {
		limit = PixelsMax
	}
	if size.Width < 1 || size.Height < 1 {
		return nil, fmt.Errorf("it is %d×%d pixels", size.Width, size.Height)
	}
	if int64(size.Width)*int64(size.Height) > limit {
		return nil, fmt.Errorf("%d×%d pixels are over the limit of %d", size.Width, size.Height, limit)
	}
	if most := deflateRatioMax * int64(len(b)); c.name == "PNG" && int64(size.Width)*int64(size.Height)/8 > most {
		return nil, fmt.Errorf("%d×%d pixels are more than can be in it", size.Width, size.Height)
	}
	p, err := c.pixels(b, size)
	if err != nil {
		return nil, err
	}
	if o.Turn {
		p = p.turn(Orientation(b))
	}
	return p, nil
}

// pixels decodes a picture whose size was checked.
func (c *container) pixels(b []byte, size image.Config) (*Picture, error) {
	if c.decode == nil {
		return decodeJPEG(b)
	}
	m, err := c.decode(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return toRGB(m, size.Width, size.Height), nil
}

// toRGB copies a picture onto a canvas of a size: a GIF's first frame may cover only some of it.
func toRGB(m image.Image, w, h int) *Picture {
	p := NewPicture(w, h)
	at := pixelOf(m)
	r := m.Bounds()
	for y := max(r.Min.Y, 0); y < min(r.Max.Y, h); y++ {
		for x := max(r.Min.X, 0); x < min(r.Max.X, w); x++ {
			c := at(x, y)
			copy(p.Pix[(y*w+x)*3:], c[:])
		}
	}
	return p
}

// pixelOf reads pixels without the products with alpha that image.Image takes.
func pixelOf(m image.Image) func(x, y int) [3]byte {
	switch m := m.(type) {
	case *image.NRGBA:
		return func(x, y int) [3]byte { i := m.PixOffset(x, y); return [3]byte(m.Pix[i : i+3]) }
	case *image.RGBA: // of a PNG: opaque
		return func(x, y int) [3]byte { i := m.PixOffset(x, y); return [3]byte(m.Pix[i : i+3]) }
	case *image.Gray:
		return func(x, y int) [3]byte { v := m.GrayAt(x, y).Y; return [3]byte{v, v, v} }
	case *image.Gray16:
		return func(x, y int) [3]byte { v := byte(min(m.Gray16At(x, y).Y, 255)); return [3]byte{v, v, v} }
	case *image.Paletted:
		palette := opaque(m.Palette)
		return func(x, y int) [3]byte { return palette[m.ColorIndexAt(x, y)] }
	case *image.CMYK:
		return func(x, y int) [3]byte { return fromCMYK(m.CMYKAt(x, y)) }
	}
	return func(x, y int) [3]byte {
		c := color.NRGBA64Model.Convert(m.At(x, y)).(color.NRGBA64)
		return [3]byte{byte(c.R >> 8), byte(c.G >> 8), byte(c.B >> 8)}
	}
}

// opaque is a palette without its alpha; an index beyond it is black.
func opaque(p color.Palette) (out [256][3]byte) {
	for i, c := range p {
		n, ok := c.(color.NRGBA)
		if !ok {
			n = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
		out[i] = [3]byte{n.R, n.G, n.B}
	}
	return out
}

// fromCMYK is Pillow's: white less the ink, 255ths rounded.
func fromCMYK(c color.CMYK) (out [3]byte) {
	white := 255 - int(c.K)
	for i, ink := range [3]byte{c.C, c.M, c.Y} {
		t := int(ink)*white + 128
		out[i] = byte(min(max(white-(t>>8+t)>>8, 0), 255))
	}
	return out
}
