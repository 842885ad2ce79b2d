package decoders

import (
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/stages/family"
)

// GLM 5: DeepSeek V3.2 whose indexers turn neighbouring numbers together, and of which some layers may read
// the keys that an earlier one has chosen.
var _ = family.Register(glm5())

// glm5 describes GLM-5: DeepSeek-V3 with an indexer, whose choice some layers take over from a layer before.
func glm5() family.Family {
	f := deepseek3("glm_moe_dsa", "2603.12201", "")
	f.Loong = []loong.Decoder{{Class: "GlmConfig", Convert: "glm5_convert.yaml", Alone: true,
		Preset: map[string]string{"norm_topk_prob": "true"}}, {Class: "GlmConfig", Convert: "glm5_2_convert.yaml",
		Alone: true, Preset: map[string]string{"norm_topk_prob": "true"}}}
	f.HF.Class = "GlmMoeDsaForCausalLM"
	for key, value := range map[string]string{"hidden_size": "6144", "intermediate_size": "12288",
		"num_hidden_layers": "78", "num_attention_heads": "64", "vocab_size": "154880",
		"max_position_embeddings": "202752", "q_lora_rank": "2048", "qk_nope_head_dim": "192",
		"v_head_dim": "256", "n_group": "1", "topk_group": "1", "rms_norm_eps": "1e-5", "index_topk": "2048",
		"index_n_heads": "32", "index_head_dim": "128"} {
		f.HF.Absent[key] = value
	}
	f.HF.Has = append(f.HF.Has, "indexer_types")
	f.HF.IndexPairs = true
	f.HF.Own = append(f.HF.Own, hf.Keys(glmKeys{Every: 1, First: 2, Layers: 78}, glmKeys.enter))
	f.HF = family.Indexed(f.HF)
	f.Spec = func(c configs.Model, s *family.Spec) {
		s.UseIndexer(c)
		corrected(s, c)
		s.Latent.Index.Pairs = true
	}
	return f
}

// glmKeys are the other ways to say which layers have an indexer: a letter a layer, or how often one comes
// after the first ones.
type glmKeys struct {
	Types   []string `key:"indexer_types"`
	Letters string   `key:"index_topk_pattern"`
	Every   int      `key:"index_topk_freq" min:"1"`
	First   int      `key:"index_skip_topk_offset" min:"0"`
	Layers  int      `key:"num_hidden_layers"`
}

// enter writes out for each layer whether it has an indexer of its own or shares one. The files say
// it by a list, by letters, or by a period.
func (k glmKeys) enter(d *hf.Decoder) {
	if k.Types != nil || k.Letters == "" && k.Every == 1 {
		return // each has one, or what it has
	}
	kinds := configs.IndexerKinds(k.Layers, k.Every, k.First)
	for i, letter := range k.Letters {
		if i < k.Layers {
			kinds[i] = map[rune]string{'F': configs.IndexFull, 'S': configs.IndexShared}[letter]
		}
	}
	d.Set("indexer_types", family.JSONOf(kinds))
}
