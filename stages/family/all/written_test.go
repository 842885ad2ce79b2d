package all

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWrittenKeys: a config.json that is written has keys that are 0 where transformers would take another number for
// a key that is not there, and those of biases and of heads that its classes read. TestFamilyFuzz holds all of them.
func TestWrittenKeys(t *testing.T) {
	for _, c := range []struct {
		folder, key, as string
		value, want     any
	}{
		{"deepseek-v3", "first_k_dense_replace", "first_k_dense_replace", 0.0, 0.0},
		{"ernie4.5-moe", "moe_layer_start_index", "moe_layer_start_index", 0.0, 0.0},
		{"qwen2-moe", "qkv_bias", "qkv_bias", true, true},
		{"cohere2", "head_dim", "head_dim", 32.0, 32.0},
		{"phi3", "pad_token_id", "pad_token_id", nil, nil},
		{"stablelm", "use_qkv_bias", "use_qkv_bias", true, true},
		{"hy-v3", "mlp_bias", "mlp_bias", true, true},
		{"mellum", "num_mtp_layers", "num_mtp_layers", nil, nil},
		{"sarvam-moe", "n_routed_experts", "n_routed_experts", 6.0, 6.0},
	} {
		var all, written map[string]any
		text, err := os.ReadFile(filepath.Join("../testdata", c.folder, "config.json"))
		require.NoError(t, err, c.folder)
		require.NoError(t, json.Unmarshal(text, &all))
		all[c.key] = c.value
		m, _, err := leafModel(t, t.TempDir(), all)
		require.NoError(t, err, c.folder)
		require.NoError(t, json.Unmarshal(m.HFConfig("float32"), &written))
		require.Contains(t, written, c.as, c.folder)
		require.Equal(t, c.want, written[c.as], c.folder)
	}
}
