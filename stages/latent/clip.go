package latent

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/stages/diffusers"
)

// clipKeys are the keys that autoencoders of clips share.
type clipKeys struct {
	BaseDim   int   `json:"base_dim"`
	LatentDim int   `json:"z_dim"`
	DimMult   []int `json:"dim_mult"` // multiples of base_dim, a level each, the finest first
	ResBlocks int   `json:"num_res_blocks"`
	// AttnScales are those of the encoder's levels that have attention: 1, 1/2, 1/4 …
	AttnScales  []float64 `json:"attn_scales"`
	TimeDown    []bool    `json:"temperal_downsample"` // behind which levels frames are halved too
	Dropout     float64   `json:"dropout"`
	LatentsMean []float64 `json:"latents_mean"`
	LatentsStd  []float64 `json:"latents_std"`
}

// wanKeys are diffusers' defaults, those of Wan 2.1.
func wanKeys() clipKeys {
	return clipKeys{BaseDim: 96, LatentDim: 16, DimMult: []int{1, 2, 4, 4}, ResBlocks: 2, AttnScales: []float64{},
		TimeDown: []bool{false, true, true}, LatentsMean: []float64{-0.7571, -0.7089, -0.9113, 0.1075,
			-0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921},
		LatentsStd: []float64{2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652,
			1.5579, 1.6382, 1.1253, 2.8251, 1.9160}}
}

// halvingsMax is how often diffusers' encoder, which takes four frames at a time, can halve their number.
const halvingsMax = 2

func (c *clipKeys) check(f *diffusers.Faults) {
	number(f, "base_dim", c.BaseDim, 1, channelsMax)
	number(f, "z_dim", c.LatentDim, 1, channelsMax)
	number(f, "num_res_blocks", c.ResBlocks, 1, layersMax)
	numbers(f, "dim_mult", c.DimMult, 1, 64)
	if want := len(c.DimMult) - 1; len(c.TimeDown) != want {
		f.Add("temperal_downsample", fmt.Sprintf("set %d values", want), "%d values between %d levels",
			len(c.TimeDown), len(c.DimMult))
	}
	if n := c.halvings(); n > halvingsMax {
		f.Add("temperal_downsample", fmt.Sprintf("take at most %d", halvingsMax), "frames are halved %d times", n)
	}
	for _, s := range c.AttnScales {
		if !slices.Contains(c.scales(), s) {
			f.Add("attn_scales", fmt.Sprintf("take some of %v", c.scales()), "no level has the scale %g", s)
		}
	}
	if c.Dropout != 0 {
		f.Add("dropout", "set 0.0", "%g, and autoencoders are trained without dropout here", c.Dropout)
	}
	moments(f, c.LatentsMean, c.LatentsStd, c.LatentDim)
}

// scales are those of the levels.
func (c *clipKeys) scales() []float64 {
	l, s := make([]float64, len(c.DimMult)), 1.0
	for i := range l {
		l[i] = s
		s /= 2
	}
	return l
}

// halvings is how often frames are halved.
func (c *clipKeys) halvings() (n int) {
	for _, down := range c.TimeDown {
		if down {
			n++
		}
	}
	return n
}

// factors are the pixels for one place of latents along the frames and along a side, without patches.
func (c *clipKeys) factors() (frames, side int) {
	return 1 << c.halvings(), 1 << (len(c.DimMult) - 1)
}

// model is the autoencoder of these keys and blocks, with as many channels of pixels in and out.
func (c *clipKeys) model(of Config, b clipBlocks, in, out int) *Model {
	frames, side := c.factors()
	return &Model{Config: of, In: in, Out: out, Latent: c.LatentDim, Side: side * b.patch, Frames: frames,
		Scale: scaleOf(c.LatentDim, 0, 1, c.LatentsMean, c.LatentsStd), encoder: b.encoder, decoder: b.decoder}
}
