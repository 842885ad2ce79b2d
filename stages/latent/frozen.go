package latent

import (
	"fmt"
	"sync"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Frozen is an autoencoder as a denoiser is trained and sampled with it: picture by picture, or clip by clip,
// with latents scaled as the denoiser reads them. It may be used by several goroutines, which take turns.
type Frozen struct {
	mu sync.Mutex
	a  *Autoencoder
}

// Frozen hands the autoencoder over; Close stays the caller's.
func (a *Autoencoder) Frozen() *Frozen { return &Frozen{a: a} }

// Channels are those of pixels that are encoded, and of those that are decoded.
func (f *Frozen) Channels() (in, out int) { return f.a.In, f.a.Out }

// Shape is that of the latents, [z t h w], of pixels of so many frames, rows and columns. An error says which
// of them the autoencoder takes; pictures have one frame.
func (f *Frozen) Shape(size [3]int) (latents [4]int, err error) {
	return f.a.LatentShape(size)
}

// LatentShape is Frozen.Shape, for which no weights are needed.
func (m *Model) LatentShape(size [3]int) (latents [4]int, err error) {
	shape, err := m.pixels(size)
	if err == nil {
		err = m.FitsPixels(shape)
	}
	if err != nil {
		return latents, err
	}
	l := m.latentsOf(shape)
	latents = [4]int{l[1], 1, l[len(l)-2], l[len(l)-1]}
	if m.Frames > 0 {
		latents[1] = l[2]
	}
	return latents, nil
}

// pixels is the shape of pixels of a size, one sample.
func (m *Model) pixels(size [3]int) ([]int, error) {
	if m.Frames > 0 {
		return []int{1, m.In, size[0], size[1], size[2]}, nil
	}
	if size[0] != 1 {
		return nil, fmt.Errorf("latent: %d frames; %s takes pictures, of one frame", size[0], m.Config.Class())
	}
	return []int{1, m.In, size[1], size[2]}, nil
}

// time is the number of frames of a shape [n c (t) h w].
func (f *Frozen) time(shape []int) int {
	if f.a.Frames > 0 {
		return shape[2]
	}
	return 1
}

// Encode gives the mean of scaled latents [z t h w] of pixels [c t h w] between -1 and 1, and their standard deviation.
func (f *Frozen) Encode(pixels []float32, size [3]int) (mean, deviation []float32, err error) {
	shape, err := f.a.pixels(size)
	if err != nil {
		return nil, nil, err
	}
	if err := f.a.FitsPixels(shape); err != nil {
		return nil, nil, err
	}
	if n := tensor.Len(shape); n != len(pixels) {
		return nil, nil, fmt.Errorf("latent: %d numbers for pixels %v, want %d", len(pixels), shape, n)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m, v, err := f.a.encoded(tensor.Of(tensor.F32, pixels, shape...), f.a.Scaled)
	if err != nil {
		return nil, nil, err
	}
	return m.F32(), v.F32(), nil
}

// Decode gives pixels [c t h w] of scaled latents of a shape [z t h w].
func (f *Frozen) Decode(latents []float32, shape [4]int) (pixels []float32, size [3]int, err error) {
	s := []int{1, shape[0], shape[1], shape[2], shape[3]}
	if f.a.Frames == 0 {
		if shape[1] != 1 {
			return nil, size, fmt.Errorf("latent: latents %v of %d frames; %s takes pictures, of one frame",
				shape, shape[1], f.a.Config.Class())
		}
		s = []int{1, shape[0], shape[2], shape[3]}
	}
	if err := f.a.FitsLatents(s); err != nil {
		return nil, size, err
	}
	if n := tensor.Len(s); n != len(latents) {
		return nil, size, fmt.Errorf("latent: %d numbers for latents %v, want %d", len(latents), s, n)
	}
	z := tensor.Make(tensor.F32, s...)
	copy(z.F32(), latents)
	f.a.Scale.Raw(z)
	f.mu.Lock()
	defer f.mu.Unlock()
	p, err := f.a.Decode(z)
	if err != nil {
		return nil, size, err
	}
	last := len(p.Shape)
	return p.F32(), [3]int{f.time(p.Shape), p.Shape[last-2], p.Shape[last-1]}, nil
}

// Fingerprint is a hash of all that the numbers follow from, but for the backend: settings and weights. Parts of
// clips give the numbers of whole ones.
func (f *Frozen) Fingerprint() string { return fmt.Sprintf("%s-0-2", f.a.sum) }
