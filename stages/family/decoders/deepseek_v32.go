package decoders

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/family"
)

// DeepSeek V3.2: DeepSeek V3 whose attention reads the keys that an indexer chooses.
var _ = family.Register(deepseek32())

// deepseek32 is DeepSeek-V3 with an indexer, which picks the tokens that attention looks at.
func deepseek32() family.Family {
	f := deepseek3("deepseek_v32", "2512.02556", "deepseek_v3_2_convert.yaml")
	f.HF.Class = "DeepseekV32ForCausalLM"
	for key, value := range map[string]string{"index_topk": "2048", "index_n_heads": "64",
		"index_head_dim": "128", "max_position_embeddings": "163840"} {
		f.HF.Absent[key] = value
	}
	f.HF = family.Indexed(f.HF)
	f.Spec = func(c configs.Model, s *family.Spec) {
		s.UseIndexer(c)
		corrected(s, c)
	}
	return f
}
