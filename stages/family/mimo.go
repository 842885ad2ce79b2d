package family

import "github.com/lfactor/lfactor/configs"

// MiMo-7B: Qwen2's layer with one multi-token-prediction layer.
var _ = register(Family{ModelType: "mimo", Paper: "2505.07608", Build: func(c configs.Model) *Model { return Decoder("mimo", spec(c)) }})
