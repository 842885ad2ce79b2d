package calibrate

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/fit"
)

// TestProducts: every kind of weight that a model has is measured once, as a table that reads back.
func TestProducts(t *testing.T) {
	c, err := configs.Load(configs.Request{Text: []byte(`
model: {name: qwen3-30b-a3b, init: random, overrides: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 4,
  num_key_value_heads: 2, head_dim: 16, moe_intermediate_size: 32, num_experts: 4, num_experts_per_tok: 2, vocab_size: 512}}
data: {paths: [x], tokenizer: x, seq_len: 200}
train: {precision: bf16}
`)})
	require.NoError(t, err)
	m, err := fit.Build(c)
	require.NoError(t, err)
	var seen []string
	p, err := Products(c, m, "block", 1, func(text string) { seen = append(seen, text) })
	require.NoError(t, err)
	require.Len(t, seen, 4, "qkv, proj and both of experts")
	text, err := json.Marshal(p)
	require.NoError(t, err)
	back, err := fit.ParsePolicy("it", text)
	require.NoError(t, err)
	require.Equal(t, "block", back.Recipe)
	for _, name := range []string{"model.layers.0.self_attn.q_proj.weight",
		"model.layers.0.self_attn.o_proj.weight"} {
		require.True(t, back.Takes(name, false, fit.Never, 1, 1, 4), name)
	}
	require.True(t, back.Takes("model.layers.0.mlp.experts.gate_proj.weight", true, fit.Never, 1, 1, 4))
	require.False(t, back.Takes("model.layers.0.mlp.experts.gate_proj.weight", true, fit.Never, 1, 2, 4))
	_, err = Products(c, m, "abacus", 1, nil)
	require.ErrorContains(t, err, "abacus")
}
