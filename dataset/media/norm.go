package media

// norm has the value of each byte of a channel.
type norm [3][256]float32

// clipMean and clipStd are CLIP's, half is SigLIP's.
var (
	clipMean = [3]float64{0.48145466, 0.4578275, 0.40821073}
	clipStd  = [3]float64{0.26862954, 0.26130258, 0.27577711}
	half     = [3]float64{0.5, 0.5, 0.5}
)

// three is a setting of a number a channel, or of one for all.
type three [3]float64

// three reads a value per colour; a single number stands for all three.
func (s *Settings) three(key string, def three) three {
	var one float64
	if b := s.keys[key]; len(b) > 0 && b[0] != '[' && b[0] != 'n' {
		s.get(key, &one)
		return three{one, one, one}
	}
	v := def[:]
	if s.get(key, &v) && len(v) != 3 {
		s.fail("%s has %d numbers; a colour has 3", key, len(v))
		return def
	}
	return three(v)
}

// affine is how bytes become values: v·scale, less a mean, over a deviation.
type affine struct {
	rescale, normalize bool
	scale              float64
	mean, std          three
}

// affine reads how pixels are scaled and normalized. A factor or deviation of 0 is refused.
func (s *Settings) affine(mean, std three) (a affine) {
	a.rescale, a.normalize = s.flag("do_rescale", true), s.flag("do_normalize", true)
	a.scale = s.number("rescale_factor", 1.0/255)
	a.mean, a.std = s.three("image_mean", mean), s.three("image_std", std)
	for _, v := range a.std {
		if a.normalize && v == 0 {
			s.fail("image_std has a 0")
		}
	}
	if a.scale == 0 {
		s.fail("rescale_factor is 0")
	}
	return a
}

// pillow is the table of Hugging Face's NumPy arithmetic: a product in float64, then float32.
func (a affine) pillow() *norm {
	t := new(norm)
	for c := range t {
		for v := range t[c] {
			x := float32(v)
			if a.rescale {
				x = float32(float64(v) * a.scale)
			}
			if a.normalize {
				x = float32(x-float32(a.mean[c])) / float32(a.std[c])
			}
			t[c][v] = x
		}
	}
	return t
}

// torch is the table of Hugging Face's torchvision arithmetic, which brings the scale into mean and deviation.
func (a affine) torch() *norm {
	t := new(norm)
	for c := range t {
		mean, std := float32(a.mean[c]), float32(a.std[c])
		if a.rescale {
			mean, std = mean*float32(1/a.scale), std*float32(1/a.scale)
		}
		for v := range t[c] {
			x := float32(v)
			switch {
			case a.normalize:
				x = float32(x-mean) / std
			case a.rescale:
				x *= float32(a.scale)
			}
			t[c][v] = x
		}
	}
	return t
}
