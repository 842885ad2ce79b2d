package media

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var _ = registerImage("LlavaOnevisionImageProcessor", newLlavaOnevision)

// llavaOnevision is the image processor of LLaVA-OneVision ("anyres"): an image as a whole and, where it is
// its sample's only one, its tiles, with black around it to fill them.
type llavaOnevision struct {
	side      int // of a tile
	pinpoints [][2]int
	tokens    int // of a tile; 0 where unknown
	most      int // tiles' worth of tokens
	drop      int // tokens that the tower's strategy leaves out
	around    [3]byte
	filter    *Filter
	norm      *norm
}

// newLlavaOnevision reads LLaVA-OneVision's settings: the sizes that an image may be fitted to, in
// whole tiles, and the most tiles that keep all their features.
func newLlavaOnevision(s *Settings) (ImageProcessor, error) {
	l := &llavaOnevision{filter: s.filter(), tokens: s.countBeside("num_image_tokens", 0)}
	h, w := s.box(384, 384)
	if l.side = h; h != w {
		s.fail("size is %d×%d; tiles are square", h, w)
	}
	for y := 384; y <= 2304; y += 384 {
		for x := 384; x <= 2304; x += 384 {
			l.pinpoints = append(l.pinpoints, [2]int{y, x})
		}
	}
	s.get("image_grid_pinpoints", &l.pinpoints)
	if len(l.pinpoints) == 0 || len(l.pinpoints) > tilesMax {
		s.fail("image_grid_pinpoints has %d sizes; from 1 to %d are wanted", len(l.pinpoints), tilesMax)
	}
	for _, p := range l.pinpoints {
		if min(p[0], p[1]) < l.side || max(p[0], p[1]) > sideMax || p[0]%l.side != 0 || p[1]%l.side != 0 {
			s.fail("image_grid_pinpoints has %d×%d, which is not a multiple of tiles of %d up to %d", p[0],
				p[1], l.side, sideMax)
		}
	}
	ratio := s.text("vision_aspect_ratio", "anyres_max_9")
	most, err := strconv.Atoi(strings.TrimPrefix(ratio, "anyres_max_"))
	if l.most = most; err != nil || most < 1 {
		s.fail("vision_aspect_ratio is %q; anyres_max_ and a number is wanted", ratio)
	}
	if s.text("vision_feature_select_strategy", "full") == "default" {
		l.drop = 1
	}
	s.must("do_resize", true)
	s.must("do_center_crop", false)
	s.flag("do_pad", true) // batches are made elsewhere, with the tiles that each image has
	a := s.affine(clipMean, clipStd)
	for c, v := range a.mean {
		l.around[c] = byte(int(v * 255))
	}
	l.norm = a.pillow()
	return l, nil
}

// best returns the size, among those that tiles can make, that keeps most of an image and wastes least.
// Source: select_best_resolution of transformers' image_processing_utils.py.
func (l *llavaOnevision) best(w, h int) (bh, bw int) {
	kept, waste := 0, math.MaxInt
	for _, p := range l.pinpoints {
		scale := min(float64(p[1])/float64(w), float64(p[0])/float64(h))
		k := min(int(float64(w)*scale)*int(float64(h)*scale), w*h)
		if wasted := p[0]*p[1] - k; k > kept || k == kept && wasted < waste {
			kept, waste, bh, bw = k, wasted, p[0], p[1]
		}
	}
	return bh, bw
}

// ImageExtent implements ImageProcessor.
func (l *llavaOnevision) ImageExtent(w, h, n int) (Extent, error) {
	e := Extent{Shape: []int{1, 3, l.side, l.side}, Grid: [3]int{1, 1, 1}, Size: [2]int{h, w}}
	if n > 1 {
		if l.tokens > 0 {
			e.Tokens = l.tokens + 1 - l.drop // one more for the end of a line
		}
		return e, nil
	}
	bh, bw := l.best(w, h)
	if bh == 0 {
		return e, fmt.Errorf("%d×%d pixels leave nothing at any of image_grid_pinpoints; crop the image", w, h)
	}
	e.Grid = [3]int{1, bh / l.side, bw / l.side}
	e.Shape[0] = 1 + e.Grid[1]*e.Grid[2]
	if l.tokens > 0 {
		e.Tokens = l.tokens + l.unpadded(w, h, e.Grid[1], e.Grid[2]) - l.drop
	}
	return e, e.check()
}

// unpadded counts the tokens of tiles where those of the padding are left out, each line with one more for
// its end. Source: _get_unpadded_features of transformers' processing_llava_onevision.py.
func (l *llavaOnevision) unpadded(w, h, rows, columns int) int {
	side := int(math.Sqrt(float64(l.tokens)))
	ch, cw := side*rows, side*columns
	if float64(w)/float64(h) > float64(cw)/float64(ch) {
		ch -= (ch - int(round7(float64(h)*(float64(cw)/float64(w))))) / 2 * 2
	} else {
		cw -= (cw - int(round7(float64(w)*(float64(ch)/float64(h))))) / 2 * 2
	}
	ratio := math.Sqrt(float64(ch*cw) / float64(l.most*side*side))
	if ratio > 1.1 {
		ch, cw = floorDivide(ch, ratio), floorDivide(cw, ratio)
	}
	return ch*cw + ch
}

// floorDivide is Python's a // b, which is exact where a/b would round up to a whole number.
func floorDivide(a int, b float64) int {
	return int(math.Round((float64(a) - math.Mod(float64(a), b)) / b))
}

// round7 is Python's round(x, 7): the nearest decimal.
func round7(x float64) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', 7, 64), 64) // what FormatFloat writes is a number
	return v
}

// Image implements ImageProcessor.
func (l *llavaOnevision) Image(p *Image, n int) (*Features, error) {
	e, err := l.ImageExtent(p.W, p.H, n)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, e.Rows()*e.Width())
	f := &Features{Extent: e, norm: l.norm, run: l.side * l.side}
	if n > 1 {
		square := p.square(l.around)
		f.Pixels = square.whole(out, square.Resize(l.side, l.side, l.filter))
		square.releaseUnless(p)
		return f, nil
	}
	out = p.whole(out, p.Resize(l.side, l.side, l.filter))
	bh, bw := e.Grid[1]*l.side, e.Grid[2]*l.side
	nh, nw := p.inside(bh, bw)
	canvas := NewImage(bw, bh)
	inner := p.Resize(nw, nh, l.filter)
	canvas.paste(inner, (bw-nw)/2, (bh-nh)/2)
	inner.releaseUnless(p)
	apart := canvas.planes()
	defer apart.release()
	for i := range e.Grid[1] * e.Grid[2] {
		out = apart.tile(out, i%e.Grid[2]*l.side, i/e.Grid[2]*l.side, l.side, l.side)
	}
	f.Pixels = out
	return f, nil
}

// inside returns the largest size of an image's shape within a box, rounded up.
func (p *Image) inside(h, w int) (nh, nw int) {
	sw, sh := float64(w)/float64(p.W), float64(h)/float64(p.H)
	if sw < sh {
		return min(int(math.Ceil(float64(p.H)*sw)), h), w
	}
	return h, min(int(math.Ceil(float64(p.W)*sh)), w)
}

// square centres an image on a square of a colour.
func (p *Image) square(colour [3]byte) *Image {
	if p.W == p.H {
		return p
	}
	side := max(p.W, p.H)
	out := bare(side, side)
	for i := 0; i < len(out.Pix); i += 3 {
		copy(out.Pix[i:], colour[:])
	}
	out.paste(p, (side-p.W)/2, (side-p.H)/2)
	return out
}

// paste copies an image into a larger one.
func (p *Image) paste(q *Image, x, y int) {
	for row := range q.H {
		copy(p.Pix[((y+row)*p.W+x)*3:], q.Pix[row*q.W*3:(row+1)*q.W*3])
	}
}
