package media

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"io"
)

// PixelsMax is the largest picture that Decode takes where the caller names no limit: Pillow's own, 89,478,485 pixels.
const PixelsMax = 1024 * 1024 * 1024 / 4 / 3

// deflateRatioMax is the most bytes that a compressed byte of a PNG can stand for.
const deflateRatioMax = 1032

// Options of Decode.
type Options struct {
	PixelsMax int64 // of the picture; 0 means PixelsMax
	Turn      bool  // turn and mirror the picture as its EXIF orientation says, as Pillow's ImageOps.exif_transpose
	White     bool  // lay the picture on white where it is transparent, as Hugging Face's processors do; else alpha is dropped
}

// container is a file format of pictures, told by its first bytes: names lie.
type container struct {
	name   string
	is     func(b []byte) bool
	config func(r io.Reader) (image.Config, error)
	decode func(b []byte) (image.Image, error) // nil: decodeJPEG
}

var containers = []container{
	{"JPEG", func(b []byte) bool { return bytes.HasPrefix(b, []byte("\xff\xd8\xff")) }, jpegConfig, nil},
	{"PNG", func(b []byte) bool { return bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")) }, png.DecodeConfig, whole(png.Decode)},
	{"GIF", func(b []byte) bool { return bytes.HasPrefix(b, []byte("GIF8")) }, gif.DecodeConfig, decodeGIF},
	{"WebP", func(b []byte) bool {
		return len(b) > 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP"
	}, webpConfig, decodeWebP},
}

func whole(decode func(r io.Reader) (image.Image, error)) func(b []byte) (image.Image, error) {
	return func(b []byte) (image.Image, error) { return decode(bytes.NewReader(b)) }
}

// Decode returns a picture as RGB, as Pillow's convert("RGB") does: alpha is dropped (but see Options.White), grey is repeated, 16-bit grey is cut
// off at 255 (Pillow's "I;16") and 16-bit colours keep their high bytes. The first frame of a GIF counts. The size is
// checked before anything of it is allocated.
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
	p, err := c.pixels(b, size, o.White)
	if err != nil {
		return nil, err
	}
	if o.Turn {
		p = p.turn(Orientation(b))
	}
	return p, nil
}

// pixels decodes a picture whose size was checked.
func (c *container) pixels(b []byte, size image.Config, white bool) (*Picture, error) {
	if c.decode == nil {
		return decodeJPEG(b)
	}
	m, err := c.decode(b)
	if err != nil {
		return nil, err
	}
	return toRGB(m, size.Width, size.Height, white), nil
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
