package latent

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/diffusers"
)

// AutoencoderKL is the autoencoder of Stable Diffusion, SDXL and Flux, for pictures.
type AutoencoderKL struct {
	InChannels     int       `json:"in_channels"`
	OutChannels    int       `json:"out_channels"`
	DownTypes      []string  `json:"down_block_types"`
	UpTypes        []string  `json:"up_block_types"`
	Channels       []int     `json:"block_out_channels"` // of the levels, the finest first
	LayersPerBlock int       `json:"layers_per_block"`
	Activation     string    `json:"act_fn"`
	LatentChannels int       `json:"latent_channels"`
	Groups         int       `json:"norm_num_groups"`
	ScalingFactor  float64   `json:"scaling_factor"`
	ShiftFactor    *float64  `json:"shift_factor"`
	LatentsMean    []float64 `json:"latents_mean"`
	LatentsStd     []float64 `json:"latents_std"`
	QuantConv      bool      `json:"use_quant_conv"`
	PostQuantConv  bool      `json:"use_post_quant_conv"`
	MidAttention   bool      `json:"mid_block_add_attention"`
	// SampleSize is the size of pictures in training, which diffusers takes for that of tiles. Nothing is
	// computed by tiles here.
	SampleSize diffusers.Size `json:"sample_size"`
	// ForceUpcast asks for float32 where the rest of a pipeline is narrower. An Autoencoder computes in
	// float32 always; whoever records the model chooses the tape's dtype.
	ForceUpcast bool `json:"force_upcast"`
}

const klSizes = `{"down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D", "DownEncoderBlock2D",
	"DownEncoderBlock2D"], "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D", "UpDecoderBlock2D",
	"UpDecoderBlock2D"], "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, `

var _ = Register(Class{Paper: "2112.10752", New: func() Config {
	return &AutoencoderKL{InChannels: 3, OutChannels: 3, DownTypes: []string{"DownEncoderBlock2D"},
		UpTypes: []string{"UpDecoderBlock2D"}, Channels: []int{64}, LayersPerBlock: 1, Activation: "silu",
		LatentChannels: 4, Groups: 32, SampleSize: diffusers.Size{32}, ScalingFactor: 0.18215,
		ForceUpcast: true, QuantConv: true, PostQuantConv: true, MidAttention: true}
}, Sizes: []Size{
	{"Stable Diffusion", klSizes + `"sample_size": 512}`, 83_653_863},
	{"SDXL", klSizes + `"sample_size": 1024, "scaling_factor": 0.13025}`, 83_653_863},
	{"Flux", klSizes + `"sample_size": 1024, "latent_channels": 16, "scaling_factor": 0.3611,
		"shift_factor": 0.1159, "use_quant_conv": false, "use_post_quant_conv": false}`, 83_819_683},
}})

// Types of levels: with attention behind every residual block, or without.
const (
	plainDown, attentionDown = "DownEncoderBlock2D", "AttnDownEncoderBlock2D"
	plainUp, attentionUp     = "UpDecoderBlock2D", "AttnUpDecoderBlock2D"
)

// activations are the values of "act_fn".
var activations = map[string]int{"silu": kernels.SiLU, "swish": kernels.SiLU, "mish": kernels.Mish,
	"gelu": kernels.GELU, "relu": kernels.ReLU}

// Class implements Config.
func (c *AutoencoderKL) Class() string { return "AutoencoderKL" }

func (c *AutoencoderKL) check(f *diffusers.Faults) {
	number(f, "in_channels", c.InChannels, 1, channelsMax)
	number(f, "out_channels", c.OutChannels, 1, channelsMax)
	number(f, "latent_channels", c.LatentChannels, 1, channelsMax)
	number(f, "layers_per_block", c.LayersPerBlock, 1, layersMax)
	number(f, "norm_num_groups", c.Groups, 1, channelsMax)
	numbers(f, "block_out_channels", c.Channels, 1, channelsMax)
	numbers(f, "sample_size", c.SampleSize, 1, 1<<20)
	f.OneOf("act_fn", c.Activation, "silu", "swish", "mish", "gelu", "relu")
	c.checkTypes(f, "down_block_types", c.DownTypes, plainDown, attentionDown)
	c.checkTypes(f, "up_block_types", c.UpTypes, plainUp, attentionUp)
	for _, v := range c.Channels {
		if c.Groups > 0 && v%c.Groups != 0 {
			f.Add("norm_num_groups", "take a divisor of all block_out_channels",
				"a level of %d channels does not fall into %d groups", v, c.Groups)
			break
		}
	}
	if c.ScalingFactor == 0 {
		f.Add("scaling_factor", "set one over the latents' deviation", "0 would leave nothing of latents")
	}
	moments(f, c.LatentsMean, c.LatentsStd, c.LatentChannels)
	if c.ShiftFactor != nil && c.LatentsMean != nil {
		f.Add("shift_factor", "leave one of them null", "shift_factor and latents_mean both shift the latents")
	}
}

// checkTypes wants a type for each level.
func (c *AutoencoderKL) checkTypes(f *diffusers.Faults, key string, types []string, known ...string) {
	if len(types) != len(c.Channels) {
		f.Add(key, fmt.Sprintf("set %d types", len(c.Channels)), "%d types for %d block_out_channels",
			len(types), len(c.Channels))
	}
	for _, t := range types {
		f.OneOf(key, t, known...)
	}
}

// Model implements Config.
func (c *AutoencoderKL) Model() *Model {
	shift := 0.0
	if c.ShiftFactor != nil {
		shift = *c.ShiftFactor
	}
	b := klBlocks{c, activations[c.Activation]}
	return &Model{Config: c, In: c.InChannels, Out: c.OutChannels, Latent: c.LatentChannels,
		Side:    1 << (len(c.Channels) - 1),
		Scale:   scaleOf(c.LatentChannels, shift, c.ScalingFactor, c.LatentsMean, c.LatentsStd),
		encoder: b.encoder, decoder: b.decoder, older: olderAttention}
}
