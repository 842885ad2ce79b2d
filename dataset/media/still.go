package media

import (
	"strings"

	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"math"
	"slices"
)

// AVIF, HEIC and JPEG 2000 are decoded by ffmpeg, one process an image. Their sizes come from their headers.

// heifBrands are the brands of files of still images in AV1 and HEVC. Source: ISO/IEC 23008-12 and AVIF 1.1.
var heifBrands = []string{"avif", "avis", "heic", "heix", "heim", "heis", "mif1", "msf1"}

func isHEIF(b []byte) bool {
	return len(b) > 12 && string(b[4:8]) == "ftyp" && slices.Contains(heifBrands, string(b[8:12]))
}

// Signatures of JPEG 2000: of its files, and of a bare codestream. Source: ISO/IEC 15444-1, annexes A and I.
const (
	jp2Magic = "\x00\x00\x00\x0cjP  \r\n\x87\n"
	j2kMagic = "\xff\x4f\xff\x51"
)

func isJP2(b []byte) bool {
	return bytes.HasPrefix(b, []byte(jp2Magic)) || bytes.HasPrefix(b, []byte(j2kMagic))
}

// boxes calls each with the boxes of a file or of another box, until it says that this is enough.
func boxes(b []byte, each func(kind string, body []byte) (enough bool)) {
	for len(b) >= 8 {
		size, head := uint64(binary.BigEndian.Uint32(b)), uint64(8)
		if size == 1 && len(b) >= 16 {
			size, head = binary.BigEndian.Uint64(b[8:]), 16
		}
		if size == 0 {
			size = uint64(len(b))
		}
		if size < head || size > uint64(len(b)) || each(string(b[4:8]), b[head:size]) {
			return
		}
		b = b[size:]
	}
}

// inside is the body of a box within boxes, nil where there is none.
func inside(b []byte, path ...string) []byte {
	for _, want := range path {
		var found []byte
		boxes(b, func(kind string, body []byte) bool {
			if kind == want {
				found = body
			}
			return kind == want
		})
		if b = found; want == "meta" && len(b) >= 4 {
			b = b[4:] // its version and flags
		}
	}
	return b
}

// heifSize is what a header says of the largest picture of a file; others are tiles of it, or thumbnails.
type heifSize struct {
	coded  image.Rectangle // as it is coded
	clean  image.Rectangle // what of it is to be seen
	turned bool            // by a quarter, behind that
}

// heifHeader reads sizes, the clean aperture and turns. Source: ISO/IEC 14496-12, "clap".
func heifHeader(b []byte) (s heifSize) {
	var clap []byte
	boxes(inside(b, "meta", "iprp", "ipco"), func(kind string, body []byte) bool {
		switch {
		case kind == "ispe" && len(body) >= 12:
			w, h := int(binary.BigEndian.Uint32(body[4:])), int(binary.BigEndian.Uint32(body[8:]))
			if int64(w)*int64(h) > int64(s.coded.Dx())*int64(s.coded.Dy()) {
				s.coded = image.Rect(0, 0, w, h)
			}
		case kind == "irot" && len(body) >= 1:
			s.turned = body[0]&1 == 1
		case kind == "clap" && len(body) >= 32:
			clap = body
		}
		return false
	})
	s.clean = s.coded
	if clap == nil {
		return s
	}
	ratio := func(i int) float64 {
		n, d := binary.BigEndian.Uint32(clap[8*i:]), binary.BigEndian.Uint32(clap[8*i+4:])
		return float64(int32(n)) / float64(max(d, 1))
	}
	w, h := int(ratio(0)), int(ratio(1))
	x := int(math.Round(float64(s.coded.Dx()-w)/2 + ratio(2)))
	y := int(math.Round(float64(s.coded.Dy()-h)/2 + ratio(3)))
	if r := image.Rect(x, y, x+w, y+h); w > 0 && h > 0 && r.In(s.coded) {
		s.clean = r
	}
	return s
}

// heifConfig reads the size of a file's picture as it is seen.
func heifConfig(b []byte) (c image.Config, err error) {
	s := heifHeader(b)
	if c.Width, c.Height = s.clean.Dx(), s.clean.Dy(); s.turned {
		c.Width, c.Height = c.Height, c.Width
	}
	if c.Width == 0 {
		return c, errors.New("its header tells no size")
	}
	return c, nil
}

// heifClean cuts the clean aperture out of what ffmpeg gives as it was coded.
func heifClean(b []byte, p *Image) *Image {
	s := heifHeader(b)
	if s.clean == s.coded || s.turned || p.W != s.coded.Dx() || p.H != s.coded.Dy() {
		return p
	}
	out := NewImage(s.clean.Dx(), s.clean.Dy())
	for y := range out.H {
		from := 3 * ((s.clean.Min.Y+y)*p.W + s.clean.Min.X)
		copy(out.Pix[3*y*out.W:3*(y+1)*out.W], p.Pix[from:])
	}
	return out
}

// jp2Config reads the size of a JPEG 2000 image.
func jp2Config(b []byte) (c image.Config, err error) {
	if h := inside(b, "jp2h", "ihdr"); bytes.HasPrefix(b, []byte(jp2Magic)) && len(h) >= 8 {
		return image.Config{Width: int(binary.BigEndian.Uint32(h[4:])), Height: int(binary.BigEndian.Uint32(h))}, nil
	}
	if bytes.HasPrefix(b, []byte(j2kMagic)) && len(b) >= 24 { // Xsiz, Ysiz, XOsiz and YOsiz
		at := func(i int) int { return int(binary.BigEndian.Uint32(b[8+4*i:])) }
		return image.Config{Width: at(0) - at(2), Height: at(1) - at(3)}, nil
	}
	return c, errors.New("its header tells no size")
}

// still decodes an image through ffmpeg. Its alpha is dropped. clean, which may be nil, leaves of the
// picture what is to be seen.
func still(config func([]byte) (image.Config, error), demuxer string,
	clean func(b []byte, p *Image) *Image) func(b []byte, _ bool) (*Image, error) {
	return func(b []byte, _ bool) (*Image, error) {
		want, err := config(b)
		if err != nil {
			return nil, err
		}
		p, err := stillBy(b, demuxer)
		if err == nil && clean != nil {
			if p = clean(b, p); p.W != want.Width || p.H != want.Height {
				// later ones cut it themselves, at even places: not if they are told so
				if whole, bad := stillBy(b, demuxer, "-apply_cropping", "codec"); bad == nil {
					p = clean(b, whole)
				}
			}
		}
		if err == nil && (p.W != want.Width || p.H != want.Height) {
			err = fmt.Errorf("ffmpeg gives %d×%d pixels of it, and its header says %d×%d; a later ffmpeg may put "+
				"tiles together", p.W, p.H, want.Width, want.Height)
		}
		if err != nil && strings.Contains(err.Error(), "moov atom not found") { // it looks for a film
			err = fmt.Errorf("this ffmpeg reads no such stills, as 5.1 none of HEIC: install a later one (%w)", err)
		}
		return p, err
	}
}

// stillBy has ffmpeg decode an image, with more arguments in front of the file.
func stillBy(b []byte, demuxer string, more ...string) (p *Image, err error) {
	err = asFile(b, func(file string) error {
		args := append([]string{"-nostdin", "-hide_banner", "-loglevel", "error", "-threads", "1", "-max_alloc",
			fmt.Sprint(allocMax), "-protocol_whitelist", "file", "-format_whitelist", demuxer}, more...)
		args = append(args, "-f", demuxer, "-i", "file:"+file, "-map", "0:v:0", "-frames:v", "1", "-f",
			"image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "pipe:1")
		return FFmpeg{}.run(context.Background(), "ffmpeg", args, func(r io.Reader) (err error) {
			p, err = readPPM(r)
			return err
		})
	})
	return p, err
}

// readPPM reads the picture that ffmpeg gives.
func readPPM(r io.Reader) (*Image, error) {
	in := bufio.NewReader(r)
	var w, h, most int
	n, err := fmt.Fscanf(in, "P6\n%d %d\n%d\n", &w, &h, &most)
	if n != 3 || err != nil || most != 255 || w < 1 || h < 1 || int64(w)*int64(h) > PixelsMax {
		return nil, errors.New("ffmpeg gives no picture of it")
	}
	p := bare(w, h)
	if _, err := io.ReadFull(in, p.Pix); err != nil {
		return nil, errors.New("ffmpeg breaks off within it")
	}
	return p, nil
}
