package family

import "github.com/lfactor/lfactor/configs"

// Qwen 1.5, 2 and 2.5: Llama with biases on query, key and value.
var _ = register(Family{ModelType: "qwen2", Paper: "2407.10671, 2412.15115", Build: func(c configs.Model) *Model { return Decoder("qwen2", spec(c)) }})
