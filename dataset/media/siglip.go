package media

var _ = registerImage("SiglipImageProcessor", newSiglip)

// box is a processor that squeezes an image into one tile of a fixed size.
type box struct {
	h, w   int
	patch  int // of the tower; 0 where unknown
	merge  int // side of the squares of patches that become one feature
	filter *Filter
	norm   *norm
}

// newSiglip reads SigLIP's settings: every image is brought to one size.
func newSiglip(s *Settings) (ImageProcessor, error) {
	b := &box{filter: s.filter(), patch: s.modelCount("patch_size"), merge: max(1, s.modelCount("merge"))}
	b.h, b.w = s.box(224, 224)
	s.must("do_resize", true)
	s.must("do_center_crop", false)
	s.must("do_pad", false)
	b.norm = s.affine(half, half).pillow()
	return b, nil
}

// ImageExtent implements ImageProcessor. Tokens are the tower's patches, or the squares of them that
// merge (of a pair of one's own) joins, 0 where config.json does not tell their size.
func (b *box) ImageExtent(w, h, _ int) (Extent, error) {
	e := Extent{Shape: []int{1, 3, b.h, b.w}, Grid: [3]int{1, 1, 1}, Size: [2]int{h, w}}
	if b.patch > 0 {
		e.Tokens = (b.h / b.patch / b.merge) * (b.w / b.patch / b.merge)
	}
	return e, nil
}

// Image implements ImageProcessor.
func (b *box) Image(p *Image, _ int) (*Features, error) {
	e, err := b.ImageExtent(p.W, p.H, 1)
	out := p.whole(make([]byte, 0, e.Width()), p.Resize(b.w, b.h, b.filter))
	return &Features{Extent: e, Pixels: out, norm: b.norm, run: b.h * b.w}, err
}
