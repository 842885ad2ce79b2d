package media

var _ = registerImage("Ernie4_5_VLMoeImageProcessor", newErnie)

// ernie is the image processor of ERNIE 4.5 with images: Qwen2-VL's limits on pixels and order of patches, of
// which each is of one frame, on the numbers of torchvision.
type ernie struct{ qwen }

// newErnie reads ERNIE's settings, which are those of Qwen with patches of a single frame.
func newErnie(s *Settings) (ImageProcessor, error) {
	e := &ernie{qwen{patch: s.few("patch_size", 14), merge: s.few("merge_size", 2), time: 1}}
	if n := s.few("temporal_patch_size", 1); n != 1 {
		s.fail("temporal_patch_size is %d; patches of images have one frame", n)
	}
	e.least, e.most = s.pixels(56*56, 28*28*6177)
	e.filter, e.resize = s.filter(), s.flag("do_resize", true)
	e.norm = s.affine(clipMean, clipStd).torch()
	return e, nil
}

// Image implements ImageProcessor.
func (q *ernie) Image(p *Image, _ int) (*Features, error) {
	e, err := q.ImageExtent(p.W, p.H, 1)
	if err != nil {
		return nil, err
	}
	made := p.ResizeTorch(e.Grid[2]*q.patch, e.Grid[1]*q.patch, q.filter)
	defer made.releaseUnless(p)
	out := patches(make([]byte, 0, e.Rows()*e.Width()), []*Image{made}, q.patch, q.merge)
	return &Features{Extent: e, Pixels: out, norm: q.norm, run: q.patch * q.patch}, nil
}
