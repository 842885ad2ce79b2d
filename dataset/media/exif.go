package media

import (
	"bytes"
	"encoding/binary"
)

// Orientation returns the EXIF orientation of a JPEG, 1 (upright) to 8, and 1 where there is none.
func Orientation(b []byte) int {
	if !bytes.HasPrefix(b, []byte{0xff, 0xd8}) {
		return 1
	}
	for b = b[2:]; len(b) >= 4 && b[0] == 0xff && b[1] != 0xda; {
		n := int(binary.BigEndian.Uint16(b[2:]))
		if n < 2 || n+2 > len(b) {
			return 1
		}
		body := b[4 : n+2]
		if b[1] == 0xe1 && bytes.HasPrefix(body, []byte("Exif\x00\x00")) {
			return orientationOf(body[6:])
		}
		b = b[n+2:]
	}
	return 1
}

// orientationOf reads tag 0x0112 of the first directory of a TIFF header.
func orientationOf(t []byte) int {
	if len(t) < 8 {
		return 1
	}
	var order binary.ByteOrder = binary.LittleEndian
	if t[0] == 'M' {
		order = binary.BigEndian
	}
	at := int64(order.Uint32(t[4:]))
	if at+2 > int64(len(t)) {
		return 1
	}
	n := int64(order.Uint16(t[at:]))
	for e := at + 2; n > 0 && e+12 <= int64(len(t)); e, n = e+12, n-1 {
		if order.Uint16(t[e:]) != 0x0112 {
			continue
		}
		if v := order.Uint16(t[e+8:]); v >= 1 && v <= 8 {
			return int(v)
		}
		return 1
	}
	return 1
}

// turn brings a picture with an EXIF orientation upright.
func (p *Picture) turn(orientation int) *Picture {
	if orientation < 2 || orientation > 8 {
		return p
	}
	out := NewPicture(p.W, p.H)
	if orientation >= 5 {
		out = NewPicture(p.H, p.W)
	}
	for y := range out.H {
		for x := range out.W {
			sx, sy := x, y
			if orientation >= 5 {
				sx, sy = y, x
			}
			switch orientation {
			case 2, 3:
				sx = p.W - 1 - sx
			case 7, 8:
				sx = p.W - 1 - sx
			}
			switch orientation {
			case 3, 4, 6, 7:
				sy = p.H - 1 - sy
			}
			copy(out.Pix[(y*out.W+x)*3:][:3], p.Pix[(sy*p.W+sx)*3:])
		}
	}
	return out
}
