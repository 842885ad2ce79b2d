package media

import "math"

var _ = registerImage("InternVLChat", newInternVLChat)

// newInternVLChat reads the processor of InternVL checkpoints in their own format, whose config.json has
// model_type internvl_chat and says how images are cut; their preprocessor_config.json is CLIP's and is
// not looked at. Source: dynamic_preprocess of the model's repository.
func newInternVLChat(s *Settings) (ImageProcessor, error) {
	for key := range s.keys {
		s.read[key] = true
	}
	m := &Settings{file: s.file, keys: s.model, read: map[string]bool{}}
	side := m.count("force_image_size", 448)
	patch, ratio := s.modelCount("patch_size"), m.number("downsample_ratio", 0.5)
	if patch == 0 {
		patch = 14
	}
	v := &internVL{h: side, w: side, filter: Bicubic, cut: m.flag("dynamic_image_size", true)}
	v.least, v.most = m.count("min_dynamic_patch", 1), m.count("max_dynamic_patch", 12)
	m.must("use_thumbnail", true)
	if v.least > v.most || v.most > tilesMax || side > sideMax || side%patch != 0 || !(ratio > 0 && ratio <= 1) {
		m.fail("force_image_size %d, patch_size %d, min_dynamic_patch %d, max_dynamic_patch %d and downsample_ratio "+
			"%v of config.json make no tiles", side, patch, v.least, v.most, ratio)
	}
	v.tokens = int(math.Pow(float64(side/patch), 2) * ratio * ratio)
	v.norm = affine{rescale: true, normalize: true, scale: 1.0 / 255, mean: three{0.485, 0.456, 0.406},
		std: three{0.229, 0.224, 0.225}}.pillow()
	s.errs = append(s.errs, m.errs...)
	return v, nil
}
