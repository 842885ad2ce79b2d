package decoders

import (
	"fmt"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/loong"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/stages/family"
)

// Qwen 3.5 with experts as a model of text: the layers of Qwen 3.5, and in each experts whose weights add up
// to 1 beside an MLP behind a gate. There is no layer with one MLP, and config.json has no width of it.
var _ = family.Register(family.Family{ModelType: "qwen3_5_moe_text", Paper: "2412.06464",
	HF: counted3_5(alwaysMixed(family.Mixed(hybrid(hf.Family{Class: "Qwen3_5MoeForCausalLM", Score: "softmax",
		Has: []string{"num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size",
			"router_aux_loss_coef", "output_router_logits"}, Absent: map[string]string{"hidden_size": "2048",
			"num_hidden_layers": "40", "num_attention_heads": "16", "num_key_value_heads": "2",
			"vocab_size": "248320", "num_experts": "256", "num_experts_per_tok": "8", "moe_intermediate_size": "512",
			"shared_expert_intermediate_size": "512", "router_aux_loss_coef": "0.001"}})))), Loong: []loong.Decoder{
		{Class: "Qwen35Config", Mixed: true, Preset: qwen3_5Preset}}, Spec: func(c configs.Model, s *family.Spec) {
		hybridSpec(s, c)
		s.UseExperts(c, func(int) bool { return false })
		s.Experts.Router = routing.Router{Normalize: true}
		sharedExpert(s, c)
	}, Source: func(c configs.Model) func(string) family.Source {
		return InOrderBeside(c, family.EachExpert(c))
	}, Other: func(c configs.Model) func(string) family.Source {
		return InOrderBeside(c, family.FusedExperts(c))
	}})

// alwaysMixed gives a family without a width of dense layers that of an expert in its place.
func alwaysMixed(f hf.Family) hf.Family {
	type keys struct {
		Width  int `key:"intermediate_size"`
		Expert int `key:"moe_intermediate_size"`
	}
	f.Omit = append(f.Omit, "intermediate_size")
	f.Own = append(f.Own, hf.Keys(keys{Expert: family.WholeOf(f.Absent["moe_intermediate_size"])},
		func(k keys, d *hf.Decoder) {
			if k.Width == 0 {
				d.Set("intermediate_size", fmt.Sprint(k.Expert))
			}
		}))
	return f
}
