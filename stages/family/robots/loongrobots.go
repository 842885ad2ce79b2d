package robots

import "github.com/lfactor/lfactor/configs/loong"

// LoongForge's policies of robots. Actions and states have the width of the recordings there as here, and
// what is compiled is no matter of a model's file.
var _ = func() bool {
	loong.RegisterPolicy(loong.Policy{Name: "pi05", Model: "pi/0.5",
		Keys: map[string][]string{"model.action_dim": nil, "model.state_dim": nil, "model.max_state_dim": nil,
			"model.action_horizon": {"model.overrides.chunk_size", "data.seq_len"}, "model.max_action_dim": {
				"model.overrides.in_channels"}, "model.gradient_checkpointing": {"plan.recompute"},
			"data.image_size": {"model.overrides.view_size"}, "model.compile_model": nil, "model.compile_mode": nil,
			"model.compile_scope": nil, "model.compile_fullgraph": nil, "model.compile_dynamic": nil},
		Values: map[string]map[string]string{"model.gradient_checkpointing": {"true": "full", "false": "none"}},
		Only:   map[string][]string{"data.image_normalize_mode": {"identity"}}})
	loong.RegisterPolicy(xvlaLoong())
	return true
}()

// xvlaLoong is LoongForge's file of X-VLA. Its dropouts are noted: there is none here.
func xvlaLoong() loong.Policy {
	p := loong.Policy{Name: "xvla", Model: "xvla/base", Keys: map[string][]string{
		"model.num_actions":      {"model.overrides.chunk_size", "data.seq_len"},
		"model.num_domains":      {"model.overrides.embodiments"},
		"model.len_soft_prompts": {"model.overrides.soft_prompts"},
		"model.dim_time":         {"model.overrides.time_width"},
		"model.max_len_seq":      {"model.overrides.policy_positions"},
		"model.hidden_size":      {"model.overrides.hidden_size"},
		"model.depth":            {"model.overrides.num_hidden_layers"},
		"model.num_heads":        {"model.overrides.num_attention_heads"},
		"model.action_mode":      {"model.overrides.action_form"},
		"model.max_action_dim":   {"model.overrides.in_channels"},
		"data.num_image_views":   {"model.overrides.views"},
		"model.real_action_dim":  nil, "model.action_horizon": nil, "model.soft_prompt_length": nil,
		"model.attn_dropout": nil, "model.mlp_dropout": nil, "model.enable_torch_compile": nil,
		"model.torch_compile_mode": nil}, Only: map[string][]string{"model.mlp_ratio": {"4.0", "4"},
		"model.use_hetero_proj": {"false"}, "model.use_proprio": {"true"}}}
	const f, text, vision = "model.florence_config.", "model.florence_config.text_config.",
		"model.florence_config.vision_config."
	for key, to := range map[string]string{f + "vocab_size": "vocab_size",
		text + "max_position_embeddings": "text_positions", text + "d_model": "text_hidden_size",
		text + "encoder_layers": "text_layers", text + "encoder_attention_heads": "text_heads",
		vision + "patch_size": "tower_kernels", vision + "patch_stride": "tower_strides",
		vision + "patch_padding": "tower_paddings", vision + "dim_embed": "tower_widths",
		vision + "num_heads": "tower_heads", vision + "num_groups": "tower_groups",
		vision + "depths": "tower_depths", vision + "window_size": "tower_window",
		vision + "visual_temporal_embedding.max_temporal_embeddings": "tower_times",
		vision + "image_pos_embed.max_pos_embeddings":                "tower_places"} {
		p.Keys[key] = []string{"model.overrides." + to}
	}
	for _, key := range []string{f + "model_type", f + "ignore_index", f + "torch_dtype",
		f + "is_encoder_decoder", f + "projection_dim", text + "activation_dropout", text + "attention_dropout",
		text + "decoder_attention_heads", text + "decoder_layers", text + "dropout", text + "num_hidden_layers",
		text + "vocab_size", vision + "drop_path_rate", vision + "enable_checkpoint",
		vision + "projection_dim"} {
		p.Keys[key] = nil
	}
	for key, only := range map[string]string{f + "bos_token_id": "0", f + "eos_token_id": "2",
		f + "pad_token_id": "1", text + "activation_function": "gelu",
		vision + "model_type": "davit", vision + "patch_prenorm": "false true true true",
		vision + "visual_temporal_embedding.type": "COSINE", vision + "image_pos_embed.type": "learned_abs_2d",
		vision + "image_feature_source": "spatial_avg_pool temporal_avg_pool"} {
		p.Only[key] = []string{only}
	}
	return p
}
