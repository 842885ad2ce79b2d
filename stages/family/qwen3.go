package family

import "github.com/lfactor/lfactor/configs"

// Qwen3 dense: RMS norms on each head's query and key, no biases.
var _ = register(Family{ModelType: "qwen3", Paper: "2505.09388", Build: func(c configs.Model) *Model { return Decoder("qwen3", spec(c)) }})
