package media

import (
	"bytes"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"io"

	"golang.org/x/image/bmp"
	"golang.org/x/image/tiff"
)

// PixelsMax is the largest image that Decode takes where the caller names no limit: Pillow's own, 89,478,485 pixels.
const PixelsMax = 1024 * 1024 * 1024 / 4 / 3

// deflateRatioMax is the most bytes that a compressed byte of a PNG can stand for.
const deflateRatioMax = 1032

// Options of Decode.
type Options struct {
	PixelsMax int64 // of the image; 0 means PixelsMax
	// turn and mirror the image as its EXIF orientation says, as Pillow's ImageOps.exif_transpose
	Turn bool
	// lay the image on white where it is transparent, as Hugging Face's processors do; else alpha is dropped
	White bool
}

// container is a file format of images, told by its first bytes: names lie.
type container struct {
	name   string
	is     func(b []byte) bool
	config func(b []byte) (image.Config, error)
	decode func(b []byte, white bool) (*Image, error)
	most   func(b []byte) int64 // pixels that a file can hold; nil: decodeJPEG tells itself
}

// pngMost is what a PNG can hold: its rows are deflated.
func pngMost(b []byte) int64 {
	if len(b) < 26 {
		return 0
	}
	samples := map[byte]int64{2: 3, 4: 2, 6: 4}[b[25]]
	return deflateRatioMax * int64(len(b)) * 8 / (max(samples, 1) * max(int64(b[24]), 1))
}

// gifMost is what a GIF can hold: a code of 12 bits stands for up to 3839 pixels.
func gifMost(b []byte) int64 { return 2560*int64(len(b)) + 1<<16 }

// webpMost is more than a WebP image holds that is not of a single colour, which could be of any size.
func webpMost(b []byte) int64 { return 4096*int64(len(b)) + 1<<22 }

var containers = []container{
	{"JPEG", func(b []byte) bool { return bytes.HasPrefix(b, []byte("\xff\xd8\xff")) }, jpegConfig,
		func(b []byte, _ bool) (*Image, error) { return decodeJPEG(b) }, nil},
	{"PNG", func(b []byte) bool { return bytes.HasPrefix(b, []byte("\x89PNG\r\n\x1a\n")) },
		whole(png.DecodeConfig), decodePNG, pngMost},
	{"GIF", func(b []byte) bool { return bytes.HasPrefix(b, []byte("GIF8")) }, whole(gif.DecodeConfig),
		through(decodeGIF), gifMost},
	{"WebP", func(b []byte) bool {
		return len(b) > 12 && string(b[:4]) == "RIFF" && string(b[8:12]) == "WEBP"
	}, webpConfig, decodeWebP, webpMost},
	{"BMP", func(b []byte) bool { return len(b) > 26 && string(b[:2]) == "BM" }, whole(bmp.DecodeConfig),
		through(decodeBMP), bmpMost},
	{"TIFF", func(b []byte) bool {
		return bytes.HasPrefix(b, []byte("II*\x00")) || bytes.HasPrefix(b, []byte("MM\x00*"))
	}, tiffConfig, decodeTIFF, tiffMost},
	{"AVIF or HEIC", isHEIF, heifConfig, still(heifConfig, "mov", heifClean), nil},
	{"JPEG 2000", isJP2, jp2Config, still(jp2Config, "j2k_pipe", nil), nil},
}

// bmpMost is what a BMP can hold: a bit a pixel at least.
func bmpMost(b []byte) int64 { return 8 * int64(len(b)) }

// tiffMost is what a TIFF can hold: its strips may be deflated, of a bit a pixel.
func tiffMost(b []byte) int64 { return deflateRatioMax * 8 * int64(len(b)) }

// decodeBMP takes images of 32 bits for opaque, as Pillow does where the file does not name an alpha mask.
func decodeBMP(b []byte) (image.Image, image.Point, error) {
	m, err := bmp.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, image.Point{}, err
	}
	return m, m.Bounds().Size(), nil
}

// Tags and values of TIFF (revision 6.0).
const (
	tiffCompression, tiffPhotometric = 0x0103, 0x0106
	tiffFax3, tiffFax4               = 3, 4
)

// tiffConfig reads the size of a TIFF as it stands upright: Pillow turns it as its orientation says.
func tiffConfig(b []byte) (image.Config, error) {
	c, err := tiff.DecodeConfig(bytes.NewReader(b))
	if orientationOf(b) >= 5 {
		c.Width, c.Height = c.Height, c.Width
	}
	return c, err
}

// decodeTIFF decodes a TIFF image. The decoder inverts some fax images, which is put right here.
func decodeTIFF(b []byte, white bool) (*Image, error) {
	m, err := tiff.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	p := toRGB(m, m.Bounds().Dx(), m.Bounds().Dy(), white)
	if c, _ := tiffTag(b, tiffCompression); c == tiffFax3 || c == tiffFax4 {
		if inks, _ := tiffTag(b, tiffPhotometric); inks == 1 { // the decoder takes black for white there
			for i := range p.Pix {
				p.Pix[i] = ^p.Pix[i]
			}
		}
	}
	return p.turn(orientationOf(b)), nil
}

func whole[T any](decode func(r io.Reader) (T, error)) func(b []byte) (T, error) {
	return func(b []byte) (T, error) { return decode(bytes.NewReader(b)) }
}

// through decodes by way of one of Go's images.
func through(decode func(b []byte) (image.Image, image.Point, error)) func(b []byte, white bool) (*Image, error) {
	return func(b []byte, white bool) (*Image, error) {
		m, size, err := decode(b)
		if err != nil {
			return nil, err
		}
		return toRGB(m, size.X, size.Y, white), nil
	}
}

// Decode returns an image as RGB, as Pillow's convert("RGB") does: alpha is dropped (but see
// Options.White), grey is repeated, 16-bit grey is cut off at 255 (Pillow's "I;16") and 16-bit colours
// keep their high bytes. The first frame of an animation counts. The size is checked before anything
// of it is allocated. An image that is cut off or damaged is an error.
func Decode(b []byte, o Options) (*Image, error) {
	c, _, err := header(b, o)
	if err != nil {
		return nil, err
	}
	p, err := c.decode(b, o.White)
	if err != nil {
		return nil, c.wrap(b, err)
	}
	if o.Turn && c.name != "TIFF" {
		p = p.turn(Orientation(b))
	}
	return p, nil
}

// Size returns the width and height of what Decode would return, from the file's header alone.
func Size(b []byte, o Options) (w, h int, err error) {
	c, size, err := header(b, o)
	if err == nil && o.Turn && c.name != "TIFF" && Orientation(b) >= 5 {
		return size.Height, size.Width, nil
	}
	return size.Width, size.Height, err
}

func (c *container) wrap(b []byte, err error) error {
	return fmt.Errorf("%s image of %d bytes: %w", c.name, len(b), err)
}

// header tells an image's format and reads its size, which it checks.
func header(b []byte, o Options) (*container, image.Config, error) {
	for i := range containers {
		if c := &containers[i]; c.is(b) {
			size, err := c.config(b)
			if err == nil {
				err = c.check(b, size, o)
			}
			if err != nil {
				return nil, size, c.wrap(b, err)
			}
			return c, size, nil
		}
	}
	return nil, image.Config{},
		fmt.Errorf("%d bytes that begin with %q are no JPEG, PNG, GIF, WebP, BMP or TIFF image, nor AVIF, HEIC or JPEG 2000", len(b),
			b[:min(len(b), 8)])
}

// check refuses sizes over the limit, and those that the file's bytes cannot hold.
func (c *container) check(b []byte, size image.Config, o Options) error {
	limit := o.PixelsMax
	if limit == 0 {
		limit = PixelsMax
	}
	switch {
	case size.Width < 1 || size.Height < 1:
		return fmt.Errorf("it is %d×%d pixels", size.Width, size.Height)
	case int64(size.Width) > limit/int64(size.Height): // their product may be over 64 bits
		return fmt.Errorf("%d×%d pixels are over the limit of %d", size.Width, size.Height, limit)
	case c.most != nil && int64(size.Width)*int64(size.Height) > c.most(b):
		return fmt.Errorf("%d×%d pixels are more than can be in it", size.Width, size.Height)
	}
	return nil
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
