package latent

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Scale brings latents to the numbers that a denoiser is trained on, about as wide as normal noise: by
// channel z' = (z - Shift)·By. It is (z - shift_factor)·scaling_factor, or with latents_mean and latents_std
// (z - mean)·scaling_factor/std, as diffusers' pipelines compute it.
type Scale struct{ Shift, By []float32 }

// scaleOf makes a Scale of z channels; mean and std may be nil.
func scaleOf(z int, shift, factor float64, mean, std []float64) Scale {
	s := Scale{make([]float32, z), make([]float32, z)}
	for c := range z {
		s.Shift[c], s.By[c] = float32(shift), float32(factor)
		if mean != nil {
			s.Shift[c], s.By[c] = float32(mean[c]), float32(factor/std[c])
		}
	}
	return s
}

// Normal changes latents [n z …] in float32 to what a denoiser is trained on.
func (s Scale) Normal(z *tensor.Tensor) {
	s.each(z, func(c int, v float32) float32 { return (v - s.Shift[c]) * s.By[c] })
}

// Raw is the inverse of Normal: what the decoder takes.
func (s Scale) Raw(z *tensor.Tensor) {
	s.each(z, func(c int, v float32) float32 { return v/s.By[c] + s.Shift[c] })
}

func (s Scale) each(z *tensor.Tensor, f func(c int, v float32) float32) {
	if len(z.Shape) < 2 || z.Shape[1] != len(s.By) {
		panic(fmt.Sprintf("latent: %v are no latents of %d channels", z, len(s.By)))
	}
	places := tensor.Len(z.Shape[2:])
	for i, v := range z.F32() {
		z.F32()[i] = f(i/max(1, places)%len(s.By), v)
	}
}

// RecordNormal is Normal of latents [n (t) h w z] on a tape, with a gradient.
func (s Scale) RecordNormal(r *block.Rec, z *grad.Value) *grad.Value {
	shift := make([]float32, len(s.By))
	for c := range shift {
		shift[c] = -s.Shift[c] * s.By[c]
	}
	return affine(r, z, 0, s.By, shift)
}

// Scaled takes moments [… 2z] apart into what a denoiser is trained on: scaled means and standard deviations
// [… z] of the latents' distribution.
func (m *Model) Scaled(r *block.Rec, moments *grad.Value) (mean, deviation *grad.Value) {
	mean, logVariance := Split(r, moments)
	deviation = r.T.Act(r.T.Scale(logVariance, 0.5), kernels.Exp)
	return m.Scale.RecordNormal(r, mean), affine(r, deviation, 0, m.Scale.By, make([]float32, len(m.Scale.By)))
}

// RecordRaw is Raw of latents [n (t) h w z] on a tape, with a gradient.
func (s Scale) RecordRaw(r *block.Rec, z *grad.Value) *grad.Value {
	by := make([]float32, len(s.By))
	for c := range by {
		by[c] = 1 / s.By[c]
	}
	return affine(r, z, 0, by, s.Shift)
}

// affine is x·(plus + by) + shift by channel, of x [… c]; by may be nil for zeros.
func affine(r *block.Rec, x *grad.Value, plus float64, by, shift []float32) *grad.Value {
	t, c := r.T, len(shift)
	if by == nil {
		by = make([]float32, c)
	}
	return t.Modulate(x, t.View(t.Const("scale", by), 1, c), t.View(t.Const("shift", shift), 1, c),
		t.ConstI32("all", []int32{0}), grad.Modulation{Norm: kernels.PlainRows, Plus: plus})
}

// clamped is x [… c] between two bounds. Inside them it is x to the bit; outside it is the bound within a
// rounding of x, without a gradient.
func clamped(r *block.Rec, x *grad.Value, low, high float64) *grad.Value {
	beyond := func(sign, bound float64) *grad.Value {
		l := make([]float32, channels(x))
		for i := range l {
			l[i] = float32(-sign * bound)
		}
		return r.T.Act(affine(r, x, sign, nil, l), kernels.ReLU)
	}
	return r.T.Add(r.T.Add(x, beyond(-1, low)), r.T.Scale(beyond(1, high), -1))
}
