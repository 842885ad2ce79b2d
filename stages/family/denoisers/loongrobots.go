package denoisers

import "github.com/lfactor/lfactor/configs/loong"

// LoongForge's policies of robots. Actions and states have the width of the recordings there as here, and
// what is compiled is no matter of a model's file.
var _ = func() bool {
	loong.RegisterPolicy(loong.Policy{Name: "pi05", Model: "pi/0.5",
		Keys: map[string][]string{
			"model.action_dim": nil, "model.state_dim": nil, "model.max_state_dim": nil,
			"model.action_horizon":         {"model.overrides.chunk_size", "data.seq_len"},
			"model.max_action_dim":         {"model.overrides.in_channels"},
			"model.gradient_checkpointing": {"plan.recompute"},
			"data.image_size":              {"model.overrides.view_size"},
			"model.compile_model":          nil, "model.compile_mode": nil, "model.compile_scope": nil,
			"model.compile_fullgraph": nil, "model.compile_dynamic": nil},
		Values: map[string]map[string]string{"model.gradient_checkpointing": {"true": "full", "false": "none"}},
		Only:   map[string][]string{"data.image_normalize_mode": {"identity"}}})
	return true
}()
