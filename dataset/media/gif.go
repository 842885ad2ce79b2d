package media

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/gif"
)

// decodeGIF decodes the first frame with the colours that its palette has, also of the transparent one,
// which Go's decoder drops. The size is that of the canvas.
func decodeGIF(b []byte) (image.Image, image.Point, error) {
	at, transparent, err := firstFrame(b)
	if err != nil {
		return nil, image.Point{}, err
	}
	size := image.Pt(int(binary.LittleEndian.Uint16(b[6:])), int(binary.LittleEndian.Uint16(b[8:])))
	if transparent {
		b = bytes.Clone(b)
		b[at] &^= 1
	}
	m, err := gif.Decode(bytes.NewReader(b))
	if p, ok := m.(*image.Paletted); ok && transparent {
		if i := int(b[at+3]); i < len(p.Palette) {
			r, g, b, _ := p.Palette[i].RGBA()
			p.Palette[i] = color.NRGBA{R: uint8(r >> 8), G: uint8(g >> 8), B: uint8(b >> 8)}
		}
	}
	return m, size, err
}

var errGIF = errors.New("the GIF data is malformed")

// firstFrame returns where the flags of the first frame's graphic control extension are, and whether they
// make a colour transparent.
func firstFrame(b []byte) (at int, transparent bool, err error) {
	if len(b) < 13 {
		return 0, false, errGIF
	}
	i := 13
	if b[10]&0x80 != 0 {
		i += 3 << (b[10]&7 + 1)
	}
	for i+8 < len(b) {
		switch {
		case b[i] == 0x2c:
			return at, transparent, nil
		case b[i] != 0x21:
			return 0, false, errGIF
		case b[i+1] == 0xf9 && b[i+2] == 4:
			at, transparent = i+3, b[i+3]&1 != 0
		}
		for i += 2; i < len(b) && b[i] != 0; {
			i += 1 + int(b[i])
		}
		i++
	}
	return 0, false, errGIF
}
