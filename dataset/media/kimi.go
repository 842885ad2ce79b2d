package media

import (
	"fmt"
	"math"
)

var _ = registerImage("Kimi_K25ImageProcessor", newKimi)

// kimi is the image processor of Kimi K2.5: an image keeps its shape and is made smaller where it has too
// many patches or too long a side, by a cubic kernel, and black fills it up to whole squares of patches.
type kimi struct {
	most, side   int // patches of an image, and along a side
	patch, merge int
	filter       *Filter
	norm         *norm
}

// newKimi reads Kimi's settings, which bound the patches in all and along each side.
func newKimi(s *Settings) (ImageProcessor, error) {
	k := &kimi{patch: s.few("patch_size", 14), merge: s.few("merge_size", 2), most: s.count("max_patches", 16384)}
	v := size{MaxHeight: 512, MaxWidth: 512}
	if s.get("size", &v); v.MaxHeight != v.MaxWidth || v.MaxHeight < 1 || v.MaxHeight > sideMax || v.Height > 0 ||
		v.Width > 0 || v.ShortestEdge > 0 || v.LongestEdge > 0 {
		s.fail("size is %s; max_height and max_width are wanted, two equal numbers of patches up to %d",
			s.keys["size"], sideMax)
	}
	k.side = v.MaxHeight
	s.must("do_resize", true)
	k.filter = s.filter()
	k.norm = s.affine(half, half).torch()
	return k, nil
}

// sides are those that an image is resized to. Source: navit_resize of transformers' image_processing_kimi_k25.py.
func (k *kimi) sides(w, h int) (nw, nh int) {
	count := max(1, float64(h/k.patch)) * max(1, float64(w/k.patch))
	limit := float64(k.side * k.patch)
	scale := min(1, math.Sqrt(float64(k.most)/count), limit/float64(h), limit/float64(w))
	to := func(n int) int { return min(max(1, int(float64(n)*scale)), k.side*k.patch) }
	return to(w), to(h)
}

// ImageExtent implements ImageProcessor.
func (k *kimi) ImageExtent(w, h, _ int) (Extent, error) {
	if w < 1 || h < 1 {
		return Extent{}, fmt.Errorf("an image of %d×%d pixels", w, h)
	}
	nw, nh := k.sides(w, h)
	unit := k.patch * k.merge
	e := Extent{Grid: [3]int{1, over(nh, unit) * k.merge, over(nw, unit) * k.merge}, Size: [2]int{h, w}}
	n := e.Grid[1] * e.Grid[2]
	e.Shape, e.Tokens = []int{n, 3 * k.patch * k.patch}, n/(k.merge*k.merge)
	return e, e.check()
}

// Image implements ImageProcessor. Patches follow each other square by square, as they join.
func (k *kimi) Image(p *Image, _ int) (*Features, error) {
	e, err := k.ImageExtent(p.W, p.H, 1)
	if err != nil {
		return nil, err
	}
	nw, nh := k.sides(p.W, p.H)
	made := p.ResizeTorch(nw, nh, k.filter)
	whole := NewImage(e.Grid[2]*k.patch, e.Grid[1]*k.patch)
	for y := range nh {
		copy(whole.Pix[3*y*whole.W:], made.Pix[3*y*nw:3*(y+1)*nw])
	}
	made.releaseUnless(p)
	out := patches(make([]byte, 0, e.Rows()*e.Width()), []*Image{whole}, k.patch, k.merge)
	return &Features{Extent: e, Pixels: out, norm: k.norm, run: k.patch * k.patch}, nil
}
