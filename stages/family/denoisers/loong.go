package denoisers

import (
	"strings"

	"github.com/lfactor/lfactor/configs/loong"
)

// loongIdle are keys of LoongForge's files of models of diffusion that say nothing that its family does
// not: sizes of clips, which are flags and data here, and how a kernel is chosen.
var loongIdle = map[string]string{"model_type": "", "latent_in_channels": "", "latent_out_channels": "",
	"latent_space_scale": "", "latent_time_scale": "", "vae_temporal_compress": "", "vae_spatial_compress": "",
	"use_fused_wan_rope": "", "num_latent_frames": "", "max_latent_height": "", "max_latent_width": "",
	"latent_channels": "", "patch_dim": "", "patch_size": "", "add_position_embedding": "",
	"untie_embeddings_and_output_weights": "", "attention_softmax_in_fp32": "", "rotary_interleaved": "",
	"position_embedding_type": "", "normalization": "", "swiglu": "", "add_bias_linear": "", "add_qkv_bias": "",
	"qk_layernorm": "", "require_clip_embedding": "", "clip_num_image_tokens": "image_rows"}

// loongKeys are the idle ones with those of a class.
func loongKeys(own map[string]string) map[string]string {
	out := map[string]string{"text_dim": "text_dim", "latent_patch_size": "latent_patch"}
	for _, m := range []map[string]string{loongIdle, own} {
		for key, to := range m {
			out[key] = to
		}
	}
	return out
}

// LoongForge's classes of models of diffusion.
var _ = func() bool {
	loong.RegisterDecoder(loong.Decoder{Class: "WanConfig", Family: "WanTransformer3DModel", Alone: true,
		Keys: loongKeys(map[string]string{"freq_dim": "freq_dim", "in_dim": "in_channels", "out_dim": "out_channels",
			"has_image_input": ""}), Only: map[string][]string{"has_image_pos_emb": {"false", "False"}},
		Derive: func(text func(...string) string) map[string]string {
			if strings.EqualFold(text("has_image_input"), "true") { // CLIP ViT-H's features
				return map[string]string{"image_dim": "1280"}
			}
			return nil
		}})
	loong.RegisterDecoder(loong.Decoder{Class: "QwenImageConfig", Family: "QwenImageTransformer2DModel", Alone: true,
		Keys: loongKeys(map[string]string{"axes_dim": "axes_dims_rope", "qwen_image_zero_cond_t": "zero_cond_t",
			"latent_in_channels": "in_channels", "latent_out_channels": "out_channels"}),
		Only: map[string][]string{"time_dim": {"256"}, "scale_rope": {"true"}, "use_layer3d_rope": {"false"},
			"use_additional_t_cond": {"false"}, "rope_theta": {"10000"}}})
	return true
}()
