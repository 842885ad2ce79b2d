package media

import (
	"image"
	"image/color"
)

// toRGB copies an image onto a canvas of a size: a GIF's first frame may cover only some of it, and the
// rest is of its transparent colour, or else of its first.
func toRGB(m image.Image, w, h int, white bool) *Image {
	p := bare(w, h)
	at := pixelOf(m)
	r := m.Bounds()
	rest := [4]byte{0, 0, 0, 255}
	if pm, ok := m.(*image.Paletted); ok {
		rest = restOf(pm.Palette)
	}
	covered := r.Min == image.Point{} && r.Dx() >= w && r.Dy() >= h
	for y := range h {
		row := p.Pix[y*w*3 : (y+1)*w*3]
		if covered && !white && plain(row, m, y) {
			continue
		}
		for x := range w {
			c := rest
			if covered || (image.Point{X: x, Y: y}).In(r) {
				c = at(x, y)
			}
			if white && c[3] < 255 {
				c = onWhite(c)
			}
			row[x*3], row[x*3+1], row[x*3+2] = c[0], c[1], c[2]
		}
	}
	return p
}

// plain copies a row of the most frequent kinds of images without looking at its alpha.
func plain(row []byte, m image.Image, y int) bool {
	var pix []byte
	switch m := m.(type) {
	case *image.NRGBA:
		pix = m.Pix[y*m.Stride:]
	case *image.RGBA:
		pix = m.Pix[y*m.Stride:]
	default:
		return false
	}
	for x := 0; x+2 < len(row); x += 3 {
		row[x], row[x+1], row[x+2] = pix[x/3*4], pix[x/3*4+1], pix[x/3*4+2]
	}
	return true
}

// onWhite is Pillow's alpha_composite with an opaque white below.
func onWhite(c [4]byte) [4]byte {
	a := int(c[3])
	for i, v := range c[:3] {
		t := (int(v)*a+255*(255-a))<<7 + 128<<7
		c[i] = byte((t>>8 + t) >> 8 >> 7)
	}
	return c
}

// pixelOf reads pixels without the products with alpha that image.Image takes.
func pixelOf(m image.Image) func(x, y int) [4]byte {
	switch m := m.(type) {
	case *image.NRGBA:
		return func(x, y int) [4]byte { i := m.PixOffset(x, y); return [4]byte(m.Pix[i : i+4]) }
	case *image.RGBA: // of a PNG: opaque
		return func(x, y int) [4]byte { i := m.PixOffset(x, y); return [4]byte(m.Pix[i : i+4]) }
	case *image.Gray:
		return func(x, y int) [4]byte { v := m.GrayAt(x, y).Y; return [4]byte{v, v, v, 255} }
	case *image.Gray16:
		return func(x, y int) [4]byte {
			v := byte(min(m.Gray16At(x, y).Y, 255))
			return [4]byte{v, v, v, 255}
		}
	case *image.Paletted:
		palette := straight(m.Palette)
		return func(x, y int) [4]byte { return palette[m.ColorIndexAt(x, y)] }
	}
	return func(x, y int) [4]byte {
		c := color.NRGBA64Model.Convert(m.At(x, y)).(color.NRGBA64)
		return [4]byte{byte(c.R >> 8), byte(c.G >> 8), byte(c.B >> 8), byte(c.A >> 8)}
	}
}

// straight is a palette with its alpha apart; an index beyond it is black.
func straight(p color.Palette) (out [256][4]byte) {
	for i := range out {
		out[i] = [4]byte{0, 0, 0, 255}
	}
	for i, c := range p {
		n, ok := c.(color.NRGBA)
		if !ok {
			n = color.NRGBAModel.Convert(c).(color.NRGBA)
		}
		out[i] = [4]byte{n.R, n.G, n.B, n.A}
	}
	return out
}

// restOf is the colour where a frame does not cover its GIF.
func restOf(p color.Palette) [4]byte {
	for i, c := range p {
		if _, _, _, a := c.RGBA(); a == 0 {
			return straight(p)[i]
		}
	}
	return straight(p)[0]
}
