package robots

import "github.com/lfactor/lfactor/configs/loong"

// LoongForge's file of Cosmos3. What of a model is trained there is freeze here; captions that are left out,
// and views that it stacks, are named in notes.
var _ = func() bool {
	p := loong.Policy{Name: "cosmos3", Model: "cosmos3/nano", Keys: map[string][]string{
		"model.latent_channel_size":                       {"model.overrides.video_channels"},
		"model.base_fps":                                  {"model.overrides.base_rate"},
		"model.unified_3d_mrope_temporal_modality_margin": {"model.overrides.position_margin"},
		"model.shift":                                     {"model.overrides.video_shift", "model.overrides.acting_shift"},
		"model.num_embodiment_domains":                    {"model.overrides.embodiments"},
		"model.max_action_dim":                            {"model.overrides.in_channels", "model.overrides.state_size"},
		"model.action_loss_weight":                        {"model.overrides.action_loss"},
		"data.action_chunk_length":                        {"model.overrides.chunk_size", "data.seq_len"},
		"data.action_fps":                                 {"model.overrides.robot_rate"}},
		Needs: map[string]string{"model.shift": "10", "model.train_time_distribution": "logitnormal, and is " +
			"not built"},
		Only: map[string][]string{"model.qk_norm_for_text": {"true"}, "model.qk_norm_for_diffusion": {"true"},
			"model.vision_gen": {"true"}, "model.action_gen": {"true"}, "model.sound_gen": {"false"},
			"model.latent_patch_size": {"2"}, "model.latent_downsample_factor": {"16"},
			"model.vae_temporal_compression": {"4"}, "model.vae_spatial_compression": {"16"},
			"model.position_embedding_type": {"unified_3d_mrope"}, "model.enable_fps_modulation": {"true"},
			"model.unified_3d_mrope_reset_spatial_ids": {"true"},
			"model.joint_attn_implementation":          {"two_way"},
			"model.train_time_distribution":            {"waver"},
			"model.train_time_weight_method":           {"uniform"}, "model.loss_scale": {"1.0", "1"}}}
	for _, key := range []string{"compile_model", "compile_dynamic", "qwen3_vl_path", "max_latent_h",
		"max_latent_w", "max_latent_t", "vae_path", "condition_frame_distribution", "encode_exact_durations",
		"train_modules", "keys_to_skip_loading", "disable_train_autocast"} {
		p.Keys["model."+key] = nil
	}
	for _, key := range []string{"cfg_dropout_rate", "target_h", "target_w", "max_text_tokens",
		"video_backend", "use_image_augmentation", "colorjitter_on_gpu"} {
		p.Keys["data."+key] = nil
	}
	loong.RegisterPolicy(p)
	return true
}()
