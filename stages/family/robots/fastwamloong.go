package robots

import "github.com/lfactor/lfactor/configs/loong"

// LoongForge's file of FastWAM. Its variant uncond is the model here; joint and idm have other attention and
// other parts. Weights that it makes of Wan's for actions, and states of captions that it makes beforehand,
// are named in notes: a run begins with lerobot's weights, and keeps states in diffusion.cache.
var _ = func() bool {
	p := loong.Policy{Name: "fastwam", Model: "fastwam/base", Keys: map[string][]string{
		"model.action_dim":             {"model.overrides.in_channels"},
		"model.max_action_dim":         {"model.overrides.in_channels"},
		"model.proprio_dim":            {"model.overrides.state_size"},
		"model.action_horizon":         {"model.overrides.chunk_size", "data.seq_len"},
		"model.tokenizer_max_len":      {"model.overrides.text_rows"},
		"data.num_video_frames":        {"model.overrides.video_frames"},
		"data.action_video_freq_ratio": {"model.overrides.video_every"},
		"data.image_size":              {"model.overrides.view_height", "model.overrides.view_width"},
		"data.normalization_mode":      {"policy.normalize"}}, Values: map[string]map[string]string{
		"data.normalization_mode": {"q99": "quantiles", "min_max": "min_max", "mean_std": "mean_std",
			"identity": "identity"}}, Needs: map[string]string{"model.variant": "joint, and is not built",
		"model.action_horizon": "16"}, Only: map[string][]string{"model.variant": {"uncond", "base"},
		"data.image_normalize_mode": {"siglip"}, "data.action_padding_strategy": {"zero"}}}
	for _, key := range []string{"model_id", "tokenizer_model_id", "load_text_encoder", "skip_dit_load_from_pretrain",
		"action_dit_pretrained_path", "redirect_common_files", "dtype", "rmsnorm_impl", "mot_checkpoint_mixed_attn"} {
		p.Keys["model."+key] = nil
	}
	for _, key := range []string{"image_resize_strategy", "text_embedding_cache_dir", "use_image_transform"} {
		p.Keys["data."+key] = nil
	}
	loong.RegisterPolicy(p)
	return true
}()
