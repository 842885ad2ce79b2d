package robots

import "github.com/lfactor/lfactor/configs/loong"

// LoongForge's file of GR00T N1.7. What of a model is trained there is freeze here, and what its own reader does to
// views and actions is named in notes; policy.actions: relative is of all numbers that policy.absolute leaves.
var _ = func() bool {
	p := loong.Policy{Name: "Gr00tN1d7", Model: "groot/n1.7", Keys: map[string][]string{
		"model.select_layer":               {"model.overrides.num_hidden_layers"},
		"model.max_state_dim":              {"model.overrides.state_size"},
		"model.max_action_dim":             {"model.overrides.in_channels"},
		"model.action_horizon":             {"model.overrides.chunk_size"},
		"model.hidden_size":                {"model.overrides.dit_output"},
		"model.input_embedding_dim":        {"model.overrides.dit_width"},
		"model.max_seq_len":                {"model.overrides.action_positions"},
		"model.attend_text_every_n_blocks": {"model.overrides.text_every"},
		"model.max_num_embodiments":        {"model.overrides.embodiments"},
		"data.use_percentiles":             {"policy.normalize"},
		"data.use_relative_action":         {"policy.actions"},
		"data.state_dropout_prob":          {"policy.state_dropout"}}, Values: map[string]map[string]string{
		"data.use_percentiles": {"true": "quantiles", "false": "min_max"}, "data.use_relative_action": {
			"true": "relative", "false": "absolute"}}, Only: map[string][]string{"model.backbone_model_type": {"qwen"},
		"model.reproject_vision": {"false"}, "model.state_history_length": {"1"}, "model.add_pos_embed": {"true"},
		"model.use_vlln": {"true"}, "model.use_alternate_vl_dit": {"true"}, "model.use_vl_self_attention": {"true"},
		"model.num_inference_timesteps": {"4"}, "model.noise_beta_alpha": {"1.5"},
		"model.noise_beta_beta": {"1.0", "1"}, "model.noise_s": {"0.999"}, "model.num_timestep_buckets": {"1000"},
		"model.backbone_embedding_dim": {"2048"}, "data.exclude_state": {"false"}, "data.use_mean_std": {"false"},
		"data.apply_sincos_state_encoding": {"false"}, "data.formalize_language": {"true"}}}
	const dit, mix = "model.diffusion_model_cfg.", "model.vl_self_attention_cfg."
	for key, to := range map[string]string{dit + "num_layers": "dit_layers", dit + "num_attention_heads": "dit_heads",
		mix + "num_layers": "mixer_layers", mix + "num_attention_heads": "mixer_heads"} {
		p.Keys[key] = []string{"model.overrides." + to}
	}
	for key, only := range map[string]string{dit + "norm_type": "ada_norm", dit + "attention_head_dim": "48",
		dit + "output_dim": "1024", dit + "interleave_self_attention": "true", mix + "attention_head_dim": "64"} {
		p.Only[key] = []string{only}
	}
	for _, key := range []string{"base_model_path", "model_name", "model_dtype", "tune_top_llm_layers", "tune_llm",
		"tune_visual", "tune_projector", "tune_diffusion_model", "tune_vlln", "use_flash_attention", "load_bf16",
		"backbone_trainable_params_fp32", "attn_dropout", "use_bf16", "state_dropout_prob"} {
		p.Keys["model."+key] = nil
	}
	for _, key := range []string{"positional_embeddings", "dropout", "final_dropout"} {
		p.Keys[dit+key], p.Keys[mix+key] = nil, nil
	}
	for _, key := range []string{"embodiment_tag", "groot_preprocess_mode", "max_token_len",
		"preprocess_action_horizon", "clip_outliers", "image_crop_size", "image_target_size", "shortest_image_edge",
		"crop_fraction", "random_rotation_angle", "color_jitter_params.brightness", "color_jitter_params.contrast",
		"color_jitter_params.saturation", "color_jitter_params.hue", "use_albumentations_transforms",
		"extra_augmentation_config", "shard_size", "episode_sampling_rate", "num_shards_per_epoch", "allow_padding",
		"use_image_transform", "use_action_transform"} {
		p.Keys["data."+key] = nil
	}
	loong.RegisterPolicy(p)
	return true
}()
