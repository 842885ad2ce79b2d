package loong

// Names of LoongForge's registry (--model-name) stand for published models here. Its own files differ from
// some of those in what the weights mean: the published values are taken, and a note says so.

// Differs are keys below model.overrides that LoongForge's file of a name has otherwise than the published
// model, with its value.
var Differs = map[string]map[string]string{
	"qwen-1.8b":    {"rope_theta": "100000000"},
	"qwen-7b":      {"rope_theta": "1000000"},
	"qwen-14b":     {"rope_theta": "1000000"},
	"qwen1.5-0.5b": {"tie_word_embeddings": "false"},
	"qwen1.5-4b":   {"rope_theta": "1000000"},
	"qwen3-0.6b":   {"tie_word_embeddings": "false"},
	"qwen3-1.7b":   {"tie_word_embeddings": "false"},
	"qwen3-4b":     {"tie_word_embeddings": "false"},
}

// Adapted are names that mean low-rank additions to another: the settings of the file that such a name stands for.
var Adapted = map[string]struct {
	Model    string
	Settings map[string]string
}{
	"qwen2.5-vl-3b-lora": {"qwen2.5-vl-3b", map[string]string{"lora.rank": "16",
		"lora.alpha": "32", "lora.dropout": "0.1", "freeze": "[visual.*, projector.*]",
		"lora.targets": "[model.layers.*.q_proj, model.layers.*.k_proj, model.layers.*.v_proj, " +
			"model.layers.*.o_proj, model.layers.*.gate_proj, model.layers.*.up_proj, model.layers.*.down_proj]"}},
}
