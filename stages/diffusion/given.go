package diffusion

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/media"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/trained"
)

// What a model that begins clips with an image is given of it: frames of their own channels, as pipelines
// of diffusers for Wan make them.

// givenShape is that of what is given beside latents of a shape.
func (x *Pictures) givenShape(latents [4]int) [4]int {
	latents[0] = x.D.Given
	return latents
}

// given is what a model is given of a clip of a size, [Given t h w]: masks that are 1 in the first frame, and the
// latents of the first frame with grey ones behind it. Latents are kept under key, which says what the pixels are.
func (x *Pictures) given(shape [4]int, size [3]int, key string, pixels func() ([]float32, error)) ([]float32, error) {
	return x.GivenOf(x.D, shape, size, key, pixels)
}

// GivenOf is given of a denoiser, which may be that of a policy's clip.
func (x *Pictures) GivenOf(d *family.Denoiser, shape [4]int, size [3]int, key string,
	pixels func() ([]float32, error)) ([]float32, error) {
	key = fmt.Sprintf("%s %s %v %g", key, x.Encoder.Fingerprint(), size, x.FPS)
	v, err := x.Once(key, func() ([][]float32, error) {
		p, err := pixels()
		if err != nil {
			return nil, err
		}
		plane := size[1] * size[2]
		first := make([]float32, 3*size[0]*plane)
		for c := range 3 {
			copy(first[c*size[0]*plane:][:plane], p[c*len(p)/3:])
		}
		mean, _, err := x.Encoder.Encode(first, size)
		return [][]float32{mean}, err
	})
	if err != nil {
		return nil, err
	}
	if n := shape[0] * shape[1] * shape[2] * shape[3]; len(v) != 1 || len(v[0]) != n || shape[0]+d.Masks != d.Given {
		return nil, fmt.Errorf("the latents of its first frame are no %v beside %d masks, and the model is given %d "+
			"channels", shape, d.Masks, d.Given)
	}
	each := shape[1] * shape[2] * shape[3]
	out := make([]float32, d.Masks*each, d.Given*each)
	for c := range d.Masks {
		for i := range shape[2] * shape[3] {
			out[c*each+i] = 1
		}
	}
	return append(out, v[0]...), nil
}

// begin prepares the image that clips begin with.
func (p *painter) begin(m *trained.Trained) error {
	d := p.x.D
	if d.Further > 0 {
		return p.changed()
	}
	switch {
	case len(p.o.Images) > 1:
		return exit.Usagef("clips begin with one image, and --image names %d", len(p.o.Images))
	case p.o.Images == nil && d.Given > 0:
		return exit.Usagef("the model begins clips with an image: name it with --image")
	case p.o.Images == nil:
		return nil
	case d.Given == 0 && m.Dir == "" && d.Process.First == 0: // a run's
		return exit.Usagef("the model was not trained to go on from an image: train it with diffusion.first_frame")
	case d.Given == 0 && (p.shape[1] < 2 || d.Patch[0] != 1):
		return exit.Usagef("--image wants clips, and this model draws single images or takes frames together")
	}
	medium := &dataset.Media{Kind: dataset.Image, Bytes: p.o.Images[0]}
	still := [3]int{1, p.size[1], p.size[2]}
	pixels := func() ([]float32, error) { return p.x.pixels(medium, still) }
	var err error
	if p.x.Look != nil {
		if p.image, err = p.x.Looked(Digest(p.o.Images[0]), func() (*media.Image, error) {
			return p.x.first(medium)
		}); err != nil {
			return err
		}
	}
	if d.Given > 0 {
		p.given, err = p.x.given(p.shape, p.size, "image "+Digest(p.o.Images[0]), pixels)
		return err
	}
	v, err := pixels()
	if err != nil {
		return err
	}
	d.Process.First = 1
	p.first, _, err = p.x.Encoder.Encode(v, still)
	return err
}

// kept are latents with the first frame that is given, if one is.
func (p *painter) kept(x []float32) []float32 {
	if p.first == nil {
		return x
	}
	x = slices.Clone(x)
	for c := range p.shape[0] {
		each := p.shape[2] * p.shape[3]
		copy(x[c*p.shape[1]*each:], p.first[c*each:(c+1)*each])
	}
	return x
}

// otherExpert is the model for levels of noise that this one is not trained at: of a path, or of the
// pipeline that the model is an expert of. It is nil for a model that is trained at all of them.
func otherExpert(m *trained.Trained, path string) (*trained.Trained, error) {
	p := m.Model.Denoiser.Process
	if p.To == 0 {
		if path != "" {
			return nil, exit.Usagef("--expert: the model is trained at all levels of noise and has no other beside it")
		}
		return nil, nil
	}
	if dir := m.Cfg.Run.Model.Path; path == "" && dir != "" {
		high, low, _, ok := hf.Experts(hf.PipelineDir(dir))
		if path = low; ok && filepath.Clean(dir) == low {
			path = high
		}
	}
	if path == "" {
		return nil, exit.Usagef("the model is trained at times from %g to %g alone: name the checkpoint of the expert "+
			"for the others with --expert", p.From, p.To)
	}
	other, err := trained.Open(path, "")
	if err != nil {
		return nil, err
	}
	if a, b := m.Model.Denoiser, other.Model.Denoiser; b == nil || a.Width() != b.Width() || a.Given != b.Given ||
		a.Texts != b.Texts || a.Process.Target.Name != b.Process.Target.Name {
		other.Close()
		return nil, exit.Usagef("--expert: the model in %s reads and gives other numbers", path)
	}
	return other, nil
}
