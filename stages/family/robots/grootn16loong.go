package robots

import "github.com/lfactor/lfactor/configs/loong"

// LoongForge's file of GR00T N1.6, as grootsevenloong.go is of N1.7. What its reader makes of recordings, in
// room for fewer numbers than the model has, is named in notes.
var _ = func() bool {
	p := loong.Policy{Name: "Gr00tN1d6", Model: "groot/n1.6", Keys: map[string][]string{
		"model.select_layer":               {"model.overrides.num_hidden_layers"},
		"model.max_state_dim":              {"model.overrides.state_size"},
		"model.max_action_dim":             {"model.overrides.in_channels"},
		"model.action_horizon":             {"model.overrides.chunk_size"},
		"model.hidden_size":                {"model.overrides.dit_output"},
		"model.input_embedding_dim":        {"model.overrides.dit_width"},
		"model.max_seq_len":                {"model.overrides.action_positions"},
		"model.attend_text_every_n_blocks": {"model.overrides.text_every"},
		"model.max_num_embodiments":        {"model.overrides.embodiments"},
		"data.use_relative_action":         {"policy.actions"}}, Values: map[string]map[string]string{
		"data.use_relative_action": {"true": "relative", "false": "absolute"}}, Only: map[string][]string{
		"model.backbone_model_type": {"eagle"}, "model.reproject_vision": {"false"},
		"model.add_pos_embed": {"true"}, "model.use_vlln": {"true"}, "model.use_alternate_vl_dit": {"true"},
		"model.num_inference_timesteps": {"4"}, "model.noise_beta_alpha": {"1.5"}, "model.noise_beta_beta": {"1.0",
			"1"}, "model.noise_s": {"0.999"}, "model.num_timestep_buckets": {"1000"}, "model.backbone_embedding_dim": {
			"2048"}, "model.state_additive_noise_scale": {"0.0", "0"}, "model.state_dropout_prob": {"0.0", "0"},
		"data.apply_sincos_state_encoding": {"false"}, "data.formalize_language": {"true"}}}
	const dit = "model.diffusion_model_cfg."
	for key, to := range map[string]string{"num_layers": "dit_layers", "num_attention_heads": "dit_heads"} {
		p.Keys[dit+key] = []string{"model.overrides." + to}
	}
	for key, only := range map[string]string{"norm_type": "ada_norm", "attention_head_dim": "48",
		"output_dim": "1024", "interleave_self_attention": "true"} {
		p.Only[dit+key] = []string{only}
	}
	for _, key := range []string{"positional_embeddings", "dropout", "final_dropout"} {
		p.Keys[dit+key] = nil
	}
	for _, key := range []string{"base_model_path", "model_name", "vlm_tokenizer_path", "tune_top_llm_layers",
		"tune_llm", "tune_visual", "tune_projector", "tune_diffusion_model", "tune_vlln", "use_flash_attention",
		"load_bf16", "backbone_trainable_params_fp32", "use_bf16", "action_dim", "state_dim"} {
		p.Keys["model."+key] = nil
	}
	for _, key := range []string{"embodiment_tag", "groot_preprocess_mode", "preprocess_action_horizon",
		"preprocess_max_action_dim", "preprocess_max_state_dim", "image_crop_size", "image_target_size",
		"shortest_image_edge", "crop_fraction", "random_rotation_angle", "color_jitter_params.brightness",
		"color_jitter_params.contrast", "color_jitter_params.saturation", "color_jitter_params.hue",
		"use_albumentations_transforms", "use_processor_image_size"} {
		p.Keys["data."+key] = nil
	}
	loong.RegisterPolicy(p)
	return true
}()
