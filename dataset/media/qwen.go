package media

import (
	"fmt"
	"math"
)

var _ = registerImage("Qwen2VLImageProcessor", newQwenImage)

// qwen is the image processor of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and LLaVA-OneVision-1.5: an image keeps its
// shape, and is resized to whole patches within limits of pixels.
type qwen struct {
	least, most        int // pixels
	patch, merge, time int
	resize             bool
	filter             *Filter
	norm               *norm
}

// newQwenImage reads Qwen2-VL's settings: images keep their shape within bounds for the number of pixels.
func newQwenImage(s *Settings) (ImageProcessor, error) {
	q := &qwen{patch: s.few("patch_size", 14), merge: s.few("merge_size", 2), time: s.few("temporal_patch_size", 2)}
	q.least, q.most = s.pixels(56*56, 28*28*1280)
	q.filter, q.resize = s.filter(), s.flag("do_resize", true)
	q.norm = s.affine(clipMean, clipStd).pillow()
	return q, nil
}

// ratioMax is the largest ratio of the sides of an image that Qwen's processors take.
const ratioMax = 200

// fitPatches returns the sides nearest to an image's that are multiples of unit and within limits of
// pixels. Source: smart_resize of transformers' image_processing_qwen2_vl.py.
func fitPatches(h, w, unit, least, most int) (int, int, error) {
	fh, fw, u := float64(h), float64(w), float64(unit)
	if max(fh, fw)/min(fh, fw) > ratioMax {
		return 0, 0, fmt.Errorf("a side of %d×%d pixels is over %d times the other; crop the image", w, h, ratioMax)
	}
	nh, nw := math.RoundToEven(fh/u)*u, math.RoundToEven(fw/u)*u
	switch {
	case nh*nw > float64(most):
		beta := math.Sqrt(fh * fw / float64(most))
		nh, nw = max(u, math.Floor(fh/beta/u)*u), max(u, math.Floor(fw/beta/u)*u)
	case nh*nw < float64(least):
		beta := math.Sqrt(float64(least) / (fh * fw))
		nh, nw = math.Ceil(float64(fh*beta)/u)*u, math.Ceil(float64(fw*beta)/u)*u
	}
	return int(nh), int(nw), nil
}

// sides returns the size that an image is brought to.
func (q *qwen) sides(w, h int) (nh, nw int, err error) {
	unit := q.patch * q.merge
	if !q.resize {
		if w%unit != 0 || h%unit != 0 {
			return 0, 0, fmt.Errorf("%d×%d pixels are no whole patches of %d, and do_resize is false", w, h, unit)
		}
		return h, w, nil
	}
	return fitPatches(h, w, unit, q.least, q.most)
}

// extent is the shape of the patches and the number of tokens of an image or clip of nh by nw pixels.
func (q *qwen) extent(steps, nh, nw, h, w int) (Extent, error) {
	e := Extent{Grid: [3]int{steps, nh / q.patch, nw / q.patch}, Size: [2]int{h, w}}
	n := e.Grid[0] * e.Grid[1] * e.Grid[2]
	e.Shape, e.Tokens = []int{n, 3 * q.time * q.patch * q.patch}, n/(q.merge*q.merge)
	return e, e.check()
}

// ImageExtent implements ImageProcessor.
func (q *qwen) ImageExtent(w, h, _ int) (Extent, error) {
	nh, nw, err := q.sides(w, h)
	if err != nil {
		return Extent{}, err
	}
	return q.extent(1, nh, nw, h, w)
}

// Image implements ImageProcessor: the image stands for every frame of its patches.
func (q *qwen) Image(p *Image, _ int) (*Features, error) {
	e, err := q.ImageExtent(p.W, p.H, 1)
	if err != nil {
		return nil, err
	}
	made := p.Resize(e.Grid[2]*q.patch, e.Grid[1]*q.patch, q.filter)
	defer made.releaseUnless(p)
	frames := make([]*Image, q.time)
	for i := range frames {
		frames[i] = made
	}
	out := patches(make([]byte, 0, e.Rows()*e.Width()), frames, q.patch, q.merge)
	return &Features{Extent: e, Pixels: out, norm: q.norm, run: q.time * q.patch * q.patch}, nil
}
