package family

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
)

var _ = RegisterMixer(LinearAttention, func(s Spec, _ int) block.Part { return s.Delta })

// LinearAttention is the kind of layers with the gated delta rule.
const LinearAttention = "linear_attention"

// LinearKeys are the keys of layers with linear attention.
type LinearKeys struct {
	LinearKeys   int `key:"linear_num_key_heads" flag:"linear-num-key-heads" default:"0" min:"0" max:"65536" class:"fixed" doc:"Key heads of a layer with linear_attention."`
	LinearValues int `key:"linear_num_value_heads" flag:"linear-num-value-heads" default:"0" min:"0" max:"65536" class:"fixed" doc:"Value heads of such a layer, a multiple of its key heads."`
	LinearKeyDim int `key:"linear_key_head_dim" flag:"linear-key-head-dim" default:"0" min:"0" max:"65536" class:"fixed" doc:"Width of a query and key of such a layer."`
	LinearDim    int `key:"linear_value_head_dim" flag:"linear-value-head-dim" default:"0" min:"0" max:"65536" class:"fixed" doc:"Width of a value of such a layer."`
	LinearTaps   int `key:"linear_conv_kernel_dim" flag:"linear-conv-kernel-dim" default:"0" min:"0" max:"64" class:"fixed" unit:"tokens" doc:"Tokens that the convolution before such a layer's rule sees."`
}

// Linear is what models say of linear attention.
var Linear = configs.Declare("linear attention", configs.Rules[LinearKeys]{
	Check: func(m configs.Model, k LinearKeys, at configs.Report) {
		if !m.Has("linear_num_key_heads") {
			return
		}
		required(at, "linear_num_key_heads", k.LinearKeys)
		required(at, "linear_num_value_heads", k.LinearValues)
		required(at, "linear_key_head_dim", k.LinearKeyDim)
		required(at, "linear_value_head_dim", k.LinearDim)
		required(at, "linear_conv_kernel_dim", k.LinearTaps)
		if k.LinearKeys > 0 && k.LinearValues%k.LinearKeys != 0 {
			at("linear_num_value_heads", fmt.Sprintf("%d is not a multiple of linear_num_key_heads = %d",
				k.LinearValues, k.LinearKeys), "")
		}
	}})

// ConvMixer is the kind of layers with a short convolution of as many taps.
const ConvMixer = "conv"

var _ = RegisterMixer(ConvMixer, func(s Spec, _ int) block.Part {
	return block.ShortConv{Hidden: s.Hidden, Taps: s.Delta.Taps}
})

// Carries reports whether layers carry a state or a convolution from each token to the next.
func (s *Spec) Carries() bool {
	return slices.ContainsFunc(s.Mixers, func(kind string) bool { return kind == LinearAttention || kind == ConvMixer })
}
