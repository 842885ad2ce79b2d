package torch

// expertNames are those of a family's experts in a layer.
type expertNames struct{ router, gate, up, down string }

// gptType is how a family differs from Llama.
type gptType struct {
	experts expertNames
	qkNorm  bool   // norms of each head's query and key
	qkvBias bool   // biases of queries, keys and values alone
	dim     int    // of a head, where the configuration has none; 0 is the width over the heads
	latent  bool   // latent attention
	gated   bool   // attention has a gate of its output
	shared  string // experts that all tokens go to, "" for none
	fused   bool   // queries, keys and values are one tensor, and gate and up
	balance bool   // the router has a bias that balances
	sparse  bool   // layers have experts by decoder_sparse_step and mlp_only_layers, else behind first_k_dense_replace
	tied    bool   // the head is the embedding where config.json does not say
	behind  bool   // norms stand behind attention and MLP, too
	split   bool   // linear attention has a matrix for each of its inputs, and experts of a layer share one
	whole   bool   // norms of queries and keys are of all heads together
	bias    string // that balances, behind the layer's name, where it is not one of the router
}

var plainExperts = expertNames{"mlp.gate", "mlp.experts.%d.gate_proj", "mlp.experts.%d.up_proj",
	"mlp.experts.%d.down_proj"}

var blockExperts = expertNames{"block_sparse_moe.gate", "block_sparse_moe.experts.%d.w1", "block_sparse_moe.experts.%d.w3",
	"block_sparse_moe.experts.%d.w2"}

// notTypes are families that Megatron's GPT has otherwise than in whole rows under a name, or not at all, and why.
var notTypes = map[string]string{"gpt_oss": "its experts lie as [in out] with gate and up by turns, and a row of one is no row of the other",
	"glm_moe_dsa": "its indexers have no names in Megatron's GPT", "deepseek_v32": "its indexers have no names in Megatron's GPT",
	"olmo": "its norms have no weights, and Megatron's have", "olmo2": "its layers have no norm before attention, and Megatron's have",
	"olmo3": "its layers have no norm before attention, and Megatron's have",
	"gpt2":  "Megatron's own GPT of learned positions, LayerNorm and GELU keeps matrices as [out in], and GPT-2 as [in out]"}

// gptTypes are the families that Megatron's GPT has.
var gptTypes = map[string]gptType{"llama": {}, "mistral": {}, "qwen2": {qkvBias: true}, "smollm3": {},
	"phi3": {fused: true}, "ernie4_5": {tied: true}, "gemma": {tied: true, dim: 256}, "gemma2": {tied: true, behind: true, dim: 256},
	"gemma3_text": {tied: true, behind: true, dim: 256, qkNorm: true}, "glm4_moe": {experts: plainExperts, shared: "shared_experts", balance: true},
	"qwen3": {qkNorm: true, dim: 128}, "qwen2_moe": {experts: plainExperts, qkvBias: true, shared: "shared_expert",
		sparse: true}, "qwen3_moe": {experts: plainExperts, qkNorm: true, dim: 128, sparse: true},
	"mixtral": {experts: blockExperts}, "olmoe": {experts: plainExperts, qkNorm: true, whole: true},
	"qwen3_5_text":     {qkNorm: true, dim: 256, gated: true, split: true},
	"qwen3_5_moe_text": {experts: plainExperts, qkNorm: true, dim: 256, gated: true, split: true, shared: "shared_expert"},
	"minimax_m2":       {experts: blockExperts, qkNorm: true, whole: true, balance: true, bias: "block_sparse_moe.e_score_correction_bias"},
	"ernie4_5_moe":     {experts: plainExperts, shared: "shared_experts", balance: true, tied: true, bias: "mlp.moe_statics.e_score_correction_bias"},
	"deepseek_v2":      {experts: plainExperts, latent: true, shared: "shared_experts"},
	"deepseek_v3":      {experts: plainExperts, latent: true, shared: "shared_experts", balance: true}, "qwen3_next": {
		experts: plainExperts, qkNorm: true, dim: 256, gated: true, shared: "shared_expert", sparse: true}}

// seeing are models that see: what their language model is, and the names in Hugging Face's files.
// Megatron-Bridge has the language model under language_model and all else under Hugging Face's own names.
var seeing = map[string]hfNames{"qwen2_5_vl": {"model.", "lm_head.weight"},
	"qwen2_vl": {"model.", "lm_head.weight"}, "llava": {"language_model.model.", "language_model.lm_head.weight"},
	"internvl": {"language_model.model.", "language_model.lm_head.weight"}}

// towers are the beginnings of names of what sees.
var towers = []string{"visual.", "vision_tower.", "multi_modal_projector.", "model.visual.", "model.vision_tower.",
	"model.multi_modal_projector."}
