package media

var _ = registerImage("Gemma3ImageProcessor", newGemma3)

// gemma3 is Gemma 3's image processor: an image as one tile, as SigLIP's, which the model sees as so many
// means of patches. Crops beside it ("pan and scan"), which are off in published models, are not made.
type gemma3 struct {
	box
	tokens int
}

// newGemma3 reads Gemma 3's settings: one size and a fixed number of tokens for every image.
// Cutting images into crops is refused.
func newGemma3(s *Settings) (ImageProcessor, error) {
	g := &gemma3{box: box{filter: s.filter()}, tokens: s.countBeside("image_seq_length", 256)}
	g.h, g.w = s.box(224, 224)
	s.must("do_resize", true)
	s.must("do_pan_and_scan", false)
	for _, key := range []string{"pan_and_scan_min_crop_size", "pan_and_scan_max_num_crops",
		"pan_and_scan_min_ratio_to_activate"} {
		s.number(key, 0) // of crops
	}
	if n := s.modelCount("mm_tokens_per_image"); n > 0 && n != g.tokens {
		s.fail("image_seq_length is %d, and mm_tokens_per_image of config.json %d", g.tokens, n)
	}
	g.norm = s.affine(half, half).pillow()
	return g, nil
}

// ImageExtent implements ImageProcessor.
func (g *gemma3) ImageExtent(w, h, n int) (Extent, error) {
	e, err := g.box.ImageExtent(w, h, n)
	e.Tokens = g.tokens
	return e, err
}

// Image implements ImageProcessor.
func (g *gemma3) Image(p *Image, n int) (*Features, error) {
	f, err := g.box.Image(p, n)
	if f != nil {
		f.Tokens = g.tokens
	}
	return f, err
}

// ImagePrompt implements ImageWriter. Source: Gemma3Processor.
func (g *gemma3) ImagePrompt(e Extent) Prompt {
	const open, token, end = "<start_of_image>", "<image_soft_token>", "<end_of_image>"
	return Prompt{Mark: open, Text: "\n\n" + open + token + end + "\n\n", Token: token, Frames: 1, Each: e.Tokens,
		Needs: []string{open, end}}
}
