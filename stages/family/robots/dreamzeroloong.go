package robots

import (
	"fmt"

	"github.com/lfactor/lfactor/configs/loong"
)

// LoongForge's files of DreamZero. What makes its steps fast says nothing of a model, and what its
// encoders are is said by the section diffusion. Parts of an action that are relative, and blocks before
// the step that is drawn, are refused; pictures are brought to the model's size at once, and not twice.
var _ = func() bool {
	block := func(actions, every string) map[string]string { // of four blocks
		n := map[string]string{"16": "64", "24": "96"}[actions]
		return map[string]string{"model.overrides.chunk_size": n, "data.seq_len": n,
			"model.overrides.video_every": every}
	}
	windows := map[string]string{}
	for n := range 64 { // blocks of two frames behind the first
		windows[fmt.Sprint(n+1)] = fmt.Sprint(2*(n+1) + 1)
	}
	p := loong.Policy{Name: "dreamzero", Model: "dreamzero/5b", By: "model.backbone_variant",
		Models: map[string]string{"wan22_5b": "dreamzero/5b", "wan21_14b": "dreamzero/14b"},
		Keys: map[string][]string{"model.max_chunk_size": {"model.overrides.block_window"},
			"model.max_state_dim":  {"model.overrides.state_size"},
			"model.max_action_dim": {"model.overrides.in_channels"},
			"model.text_len":       {"model.overrides.text_rows"},
			"model.dit_action_state_hidden_size": {
				"model.overrides.adapter_width"}}, Values: map[string]map[string]string{
			"model.max_chunk_size": windows}, Sets: map[string]map[string]map[string]string{
			"model.action_horizon": {"16": block("16", "2"), "24": block("24", "3")},
			"data.embodiment_tag": {"libero_sim": {"policy.normalize": "quantiles",
				"model.overrides.told_as": "libero"}}}, Same: [][2]string{{"model.action_horizon",
			"model.num_action_per_block"}}, Only: map[string][]string{"model.num_frames": {"33"},
			"model.num_frame_per_block": {"2"}, "model.num_action_per_block": {"16", "24"},
			"model.num_state_per_block": {"1"}, "model.state_horizon": {"1"},
			"model.decouple_video_action_noise": {"false"}, "model.tune_projector": {"true"},
			"model.tune_diffusion_model": {"true"}, "model.num_dit_steps": {"1"}, "data.relative_action": {"false"},
			"data.language_chunk_sampling": {"false"}}, Needs: map[string]string{"model.num_frames": "49",
			"model.action_horizon": "48", "model.num_frame_per_block": "1", "model.num_action_per_block": "32",
			"model.max_chunk_size": "49", "model.max_state_dim": "32", "data.embodiment_tag": "oxe_droid"}}
	for _, key := range []string{"n_action_steps", "text_encoder_pretrained_path", "image_encoder_pretrained_path",
		"vae_pretrained_path", "dit_pretrained_path", "dit_init_checkpoint_path", "action_state_init_checkpoint_path",
		"action_loss_embodiment_ids", "max_num_embodiments", "batch_vae_encode", "skip_single_state_attention",
		"compile_causal_attention", "compile_causal_cross_attention", "compile_cross_attention_emulate_precision_casts",
		"compile_block_norm_modulate", "block_norm_modulate_impl", "qk_rmsnorm_impl",
		"manual_self_attn_linear_backward", "fused_rope", "prompt_emb_cache", "cache_fa_lens", "cache_fa_lens_clone",
		"flash_attention_dense", "avoid_rope_reconcat", "attention_backend", "model_dtype", "vae_tiled",
		"num_inference_timesteps", "train_rng_reset_after_first_batch", "train_rng_seed", "train_rng_cpu_burn"} {
		p.Keys["model."+key] = nil
	}
	for _, key := range []string{"image_height", "image_width", "metadata_version", "use_mixture_dataset",
		"sampler_type", "sampler_seed", "mixture_sampling_seed", "shard_sampling_rate",
		"num_steps_per_shard", "num_shards_to_sample", "allow_padding_at_end", "relative_action_keys",
		"require_full_language_chunks", "crop_scale", "enable_color_jitter"} {
		p.Keys["data."+key] = nil
	}
	loong.RegisterPolicy(p)
	return true
}()
