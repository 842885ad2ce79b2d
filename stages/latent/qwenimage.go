package latent

import "github.com/lfactor/lfactor/stages/diffusers"

// AutoencoderKLQwenImage is the autoencoder of Qwen-Image: that of Wan 2.1, trained further, whose clips are
// pictures of one frame.
type AutoencoderKLQwenImage struct {
	clipKeys
	InputChannels int `json:"input_channels"` // of the pixels that are read and of those that are given
}

var _ = Register(Class{Paper: "2508.02324", New: func() Config {
	return &AutoencoderKLQwenImage{clipKeys: wanKeys(), InputChannels: 3}
}, Sizes: []Size{{"Qwen-Image", `{}`, 126_892_531}}})

// Class implements Config.
func (c *AutoencoderKLQwenImage) Class() string { return "AutoencoderKLQwenImage" }

func (c *AutoencoderKLQwenImage) check(f *diffusers.Faults) {
	c.clipKeys.check(f)
	number(f, "input_channels", c.InputChannels, 1, channelsMax)
}

// Model implements Config.
func (c *AutoencoderKLQwenImage) Model() *Model {
	b := clipBlocks{keys: &c.clipKeys, base: c.BaseDim, decoderBase: c.BaseDim, out: c.InputChannels, patch: 1}
	return c.model(c, b, c.InputChannels, c.InputChannels)
}
