package latent

import (
	"fmt"

	"github.com/lfactor/lfactor/stages/diffusers"
)

// AutoencoderKLWan is the autoencoder of Wan 2.1 and, with IsResidual and patches, of Wan 2.2.
type AutoencoderKLWan struct {
	clipKeys
	DecoderBaseDim *int `json:"decoder_base_dim"` // null is base_dim
	// IsResidual adds to every level what it reads, averaged or repeated to what it gives.
	IsResidual  bool `json:"is_residual"`
	InChannels  int  `json:"in_channels"` // with those that patches fold in
	OutChannels int  `json:"out_channels"`
	PatchSize   *int `json:"patch_size"`
	// pixels for one place of latents, along the frames and along a side, which follow from the other keys
	ScaleTemporal *int `json:"scale_factor_temporal"`
	ScaleSpatial  *int `json:"scale_factor_spatial"`
}

var _ = Register(Class{Paper: "2503.20314", New: func() Config {
	return &AutoencoderKLWan{clipKeys: wanKeys(), InChannels: 3, OutChannels: 3}
}, Idle: []string{"clip_output"}, Sizes: []Size{
	{"Wan 2.1", `{}`, 126_892_531},
	{"Wan 2.2", `{"base_dim": 160, "decoder_base_dim": 256, "z_dim": 48, "is_residual": true,
		"in_channels": 12, "out_channels": 12, "patch_size": 2, "scale_factor_spatial": 16,
		"scale_factor_temporal": 4, "clip_output": false, "latents_mean": null, "latents_std": null}`,
		704_688_668},
}})

// Class implements Config.
func (c *AutoencoderKLWan) Class() string { return "AutoencoderKLWan" }

// patch is the side of patches.
func (c *AutoencoderKLWan) patch() int {
	if c.PatchSize == nil {
		return 1
	}
	return *c.PatchSize
}

// decoderBase is the decoder's base_dim.
func (c *AutoencoderKLWan) decoderBase() int {
	if c.DecoderBaseDim == nil {
		return c.BaseDim
	}
	return *c.DecoderBaseDim
}

func (c *AutoencoderKLWan) check(f *diffusers.Faults) {
	c.clipKeys.check(f)
	number(f, "in_channels", c.InChannels, 1, channelsMax)
	number(f, "out_channels", c.OutChannels, 1, channelsMax)
	number(f, "decoder_base_dim", c.decoderBase(), 1, channelsMax)
	number(f, "patch_size", c.patch(), 1, 64)
	if f.Any() {
		return // what follows counts with these
	}
	for _, k := range []struct {
		key string
		v   int
	}{{"in_channels", c.InChannels}, {"out_channels", c.OutChannels}} {
		if p := c.patch(); k.v%(p*p) != 0 {
			f.Add(k.key, "take a multiple of patch_size²", "%d channels are no patches of %d by %d pixels", k.v, p, p)
		}
	}
	frames, side := c.factors()
	side *= c.patch()
	c.settle(f, "scale_factor_temporal", &c.ScaleTemporal, frames)
	c.settle(f, "scale_factor_spatial", &c.ScaleSpatial, side)
	if c.IsResidual {
		c.checkResidual(f)
	}
}

// settle gives a factor that the file leaves out its value, and reports another one.
func (c *AutoencoderKLWan) settle(f *diffusers.Faults, key string, have **int, want int) {
	if *have == nil {
		*have = &want
	}
	if **have != want {
		f.Add(key, fmt.Sprintf("set %d", want),
			"%d, but dim_mult, temperal_downsample and patch_size make it %d", **have, want)
	}
}

// checkResidual wants levels whose shortcuts are means of whole groups, or whole repetitions.
func (c *AutoencoderKLWan) checkResidual(f *diffusers.Faults) {
	if len(c.AttnScales) > 0 {
		f.Add("attn_scales", "set []", "levels with is_residual have no attention")
	}
	b := c.blocks()
	for i, l := range b.levels(b.base) {
		if in := l.in * l.frames * l.side * l.side; in%l.out != 0 {
			f.Add("dim_mult", "take multiples that divide each other",
				"level %d has no shortcut from %d numbers to %d channels", i, in, l.out)
		}
	}
	for i, l := range b.rises(b.decoderBase) {
		if out := l.out * l.frames * l.side * l.side; l.side > 1 && out%l.in != 0 {
			f.Add("dim_mult", "take multiples that divide each other",
				"level %d of the decoder has no shortcut from %d channels to %d numbers", i, l.in, out)
		}
	}
}

// blocks are those that the keys describe.
func (c *AutoencoderKLWan) blocks() clipBlocks {
	return clipBlocks{keys: &c.clipKeys, base: c.BaseDim, decoderBase: c.decoderBase(), out: c.OutChannels,
		patch: c.patch(), residual: c.IsResidual}
}

// Model implements Config.
func (c *AutoencoderKLWan) Model() *Model {
	p := c.patch()
	return c.model(c, c.blocks(), c.InChannels/p/p, c.OutChannels/p/p)
}
