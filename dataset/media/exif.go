package media

import (
	"bytes"
	"encoding/binary"
	"regexp"
)

// Orientation returns the EXIF orientation of a JPEG, PNG or WebP image, 1 (upright) to 8, and 1 where
// there is none. As in Pillow, that of XMP counts where EXIF has none.
func Orientation(b []byte) int {
	exif, xmp := metadata(b)
	if n := orientationOf(bytes.TrimPrefix(exif, exifMark)); n > 0 {
		return n
	}
	if m := xmpOrientation.FindSubmatch(xmp); m != nil && m[1][0] >= '1' && m[1][0] <= '8' {
		return int(m[1][0] - '0')
	}
	return 1
}

var (
	exifMark       = []byte("Exif\x00\x00")
	xmpMark        = []byte("http://ns.adobe.com/xap/1.0/\x00")
	xmpOrientation = regexp.MustCompile(`tiff:Orientation(?:="|>)([0-9])`)
)

// metadata finds an image's EXIF and XMP data.
func metadata(b []byte) (exif, xmp []byte) {
	switch {
	case bytes.HasPrefix(b, []byte{0xff, 0xd8}):
		return jpegMetadata(b[2:])
	case len(b) > 12 && string(b[:4]) == "RIFF":
		// what is broken has no metadata; decoding refuses it
		_ = chunks(b[12:], func(id string, body []byte) (bool, error) {
			switch id {
			case "EXIF":
				exif = body
			case "XMP ":
				xmp = body
			}
			return true, nil
		})
	case len(b) > 8 && b[0] == 0x89:
		for b = b[8:]; len(b) >= 12; {
			n := uint64(binary.BigEndian.Uint32(b))
			if n+12 > uint64(len(b)) {
				break
			}
			switch body := b[8 : 8+n]; string(b[4:8]) {
			case "eXIf":
				exif = body
			case "iTXt": // a keyword, flags and languages stand before the text
				if bytes.HasPrefix(body, []byte("XML:com.adobe.xmp\x00\x00")) {
					xmp = body
				}
			}
			b = b[12+n:]
		}
	}
	return exif, xmp
}

// jpegMetadata finds the EXIF and XMP parts of a JPEG file, in the segments before the image data;
// nil where there are none.
func jpegMetadata(b []byte) (exif, xmp []byte) {
	for len(b) >= 4 && b[0] == 0xff && b[1] != 0xda {
		n := int(binary.BigEndian.Uint16(b[2:]))
		if n < 2 || n+2 > len(b) {
			break
		}
		body := b[4 : n+2]
		switch {
		case b[1] == 0xe1 && bytes.HasPrefix(body, exifMark) && exif == nil:
			exif = body
		case b[1] == 0xe1 && bytes.HasPrefix(body, xmpMark):
			xmp = body
		}
		b = b[n+2:]
	}
	return exif, xmp
}

// orientationOf reads tag 0x0112 of the first directory of a TIFF header; 0 where there is none, and 1 where
// it makes no sense.
func orientationOf(t []byte) int {
	v, ok := tiffTag(t, 0x0112)
	switch {
	case !ok:
		return 0
	case v >= 1 && v <= 8:
		return int(v)
	}
	return 1
}

// tiffTag reads the first number of a tag of a TIFF's first directory.
func tiffTag(t []byte, tag uint16) (v uint32, ok bool) {
	if len(t) < 8 {
		return 0, false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if t[0] == 'M' {
		order = binary.BigEndian
	}
	at := int64(order.Uint32(t[4:]))
	if at+2 > int64(len(t)) {
		return 0, false
	}
	n := int64(order.Uint16(t[at:]))
	for e := at + 2; n > 0 && e+12 <= int64(len(t)); e, n = e+12, n-1 {
		if order.Uint16(t[e:]) != tag {
			continue
		}
		if order.Uint16(t[e+2:]) == 4 {
			return order.Uint32(t[e+8:]), true
		}
		return uint32(order.Uint16(t[e+8:])), true
	}
	return 0, false
}

// turn brings an image with an EXIF orientation upright.
func (p *Image) turn(orientation int) *Image {
	if orientation < 2 || orientation > 8 {
		return p
	}
	out := NewImage(p.W, p.H)
	if orientation >= 5 {
		out = NewImage(p.H, p.W)
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
