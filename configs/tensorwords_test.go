package configs

import (
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTensorWords: words for modules are patterns of tensors' names, and what is neither is a name.
func TestTensorWords(t *testing.T) {
	for _, words := range []map[string][]string{movedBy, againBy} {
		for w, globs := range words {
			require.NotEmpty(t, globs, w)
			for _, g := range globs {
				_, err := path.Match(g, "")
				require.NoError(t, err)
			}
		}
	}
	for text, want := range map[string][2]string{ // of the tensors of block 2: moved, computed again
		"core_attn":        {"self_attn.v_proj rope rope.2", "attention"},
		"moe_act@2":        {"mlp.experts.gate_proj mlp.experts.up_proj", "swiglu"},
		"moe_act@3":        {"", ""},
		"expert_fc1":       {"spread.exchanged", ""},
		"layernorm":        {"", "input_layernorm post_attention_layernorm"},
		"attention":        {"attention", "attention"},
		"dispatched_input": {"spread.exchanged", ""}, "mlp_norm": {"sum", ""}, "attn_norm": {"sum.2", ""},
		"a2a_overlap_mlp": {"", "mlp.experts.gate_proj mlp.experts.up_proj swiglu"},
	} {
		n, err := ParseTensor(text)
		require.NoError(t, err)
		for i, offload := range []bool{true, false} {
			var have []string
			for _, name := range strings.Fields("input_layernorm self_attn.q_proj self_attn.v_proj rope rope.2 " +
				"attention sum post_attention_layernorm mlp.gate spread.exchanged mlp.experts.gate_proj " +
				"mlp.experts.up_proj swiglu sum.2") {
				if n.Matches(n.Globs(offload), 2, name) {
					have = append(have, name)
				}
			}
			require.Equal(t, want[i], strings.Join(have, " "), "%s %v", text, offload)
		}
	}
}

// TestMoveFlags: LoongForge's flags for what is moved and computed again by module.
func TestMoveFlags(t *testing.T) {
	c, err := Load(Request{Args: append([]string{"--model-name", "qwen3-30b-a3b", "--data-path", "x"},
		strings.Fields("--fine-grained-activation-offloading --offload-modules expert_fc1 core_attn "+
			"--offload-tensors dispatched_input --min-offloaded-tensor-size 1048576 "+
			"--recompute-granularity selective --recompute-modules a2a_overlap_attn layernorm")...)})
	require.NoError(t, err)
	require.Equal(t, []string{"expert_fc1", "core_attn", "dispatched_input"}, c.Run.Plan.OffloadTensors)
	require.Equal(t, []string{"a2a_overlap_attn", "layernorm"}, c.Run.Plan.RecomputeTensors)
	require.Contains(t, strings.Join(c.Notices, "\n"),
		"no effect: --fine-grained-activation-offloading, --min-offloaded-tensor-size 1048576")
}
