package robots

import "github.com/lfactor/lfactor/configs/loong"

// LoongForge's file of LingBot-VA. What its reader makes of recordings, with scales of its own and captions
// that are left out, is named in notes.
var _ = func() bool {
	p := loong.Policy{Name: "lingbot_va", Model: "lingbot-va/base", Keys: map[string][]string{
		"model.num_layers":                    {"model.overrides.num_hidden_layers"},
		"model.hidden_size":                   {"model.overrides.hidden_size"},
		"model.ffn_hidden_size":               {"model.overrides.intermediate_size"},
		"model.num_attention_heads":           {"model.overrides.num_attention_heads"},
		"model.latent_in_channels":            {"model.overrides.video_channels"},
		"model.latent_patch_size":             {"model.overrides.video_patch"},
		"model.action_dim":                    {"model.overrides.in_channels"},
		"model.text_dim":                      {"model.overrides.text_dim"},
		"model.freq_dim":                      {"model.overrides.freq_dim"},
		"model.norm_epsilon":                  {"model.overrides.rms_norm_eps"},
		"model.cross_attn_norm":               {"model.overrides.cross_attn_norm"},
		"model.lingbot_va_snr_shift":          {"model.overrides.video_shift"},
		"model.lingbot_va_action_snr_shift":   {"model.overrides.action_shift", "model.overrides.acting_shift"},
		"model.lingbot_va_video_loss_weight":  {"model.overrides.video_loss"},
		"model.lingbot_va_action_loss_weight": {"model.overrides.action_loss"}},
		Only: map[string][]string{"model.latent_out_channels": {"48"},
			"model.attention_dropout":                 {"0.0", "0"},
			"model.hidden_dropout":                    {"0.0", "0"},
			"model.lingbot_va_num_train_timesteps":    {"1000"},
			"model.lingbot_va_sigma_min":              {"0.0", "0"},
			"model.lingbot_va_extra_one_step":         {"true"},
			"model.lingbot_va_noisy_cond_prob":        {"0.5"},
			"model.lingbot_va_action_noisy_cond_prob": {"0.0", "0"},
			"model.lingbot_va_window_size":            {"64"},
			"model.lingbot_va_chunk_size":             {"4"},
			"data.env_type":                           {"none"},
			"data.action_dim":                         {"30"}}}
	for _, key := range []string{"latent_space_scale", "latent_time_scale", "num_latent_frames",
		"max_latent_height", "max_latent_width", "vae_temporal_compress", "vae_spatial_compress",
		"rope_max_seq_len", "attention_backend", "recompute_granularity", "recompute_method",
		"recompute_num_layers", "lingbot_va_use_flex_attention", "lingbot_va_diffusers_checkpoint_path"} {
		p.Keys["model."+key] = nil
	}
	for _, key := range []string{"dataset_path", "empty_emb_path", "obs_cam_keys",
		"inverse_used_action_channel_ids", "norm_q01", "norm_q99", "cfg_prob", "revision", "video_backend",
		"latent_dir_name", "metadata_filename", "allow_missing_lerobot", "pad_to_multiple"} {
		p.Keys["data."+key] = nil
	}
	loong.RegisterPolicy(p)
	return true
}()
