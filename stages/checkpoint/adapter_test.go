package checkpoint

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPipelineAdapter: an adapter of a denoiser is one file, whose metadata says to diffusers what PEFT's
// configuration says, each key behind the denoiser's name.
func TestPipelineAdapter(t *testing.T) {
	dir := t.TempDir()
	name := "transformer.blocks.0.attn1.to_q.lora_A.weight"
	c := AdapterConfig{R: 3, Alpha: 5, Reach: Reach{Targets: Targets{Names: []string{"blocks.0.attn1.to_q"}}}}
	w, err := NewPipelineAdapterWriter(dir, "transformer.", c, []Info{{Name: name, DType: "F32",
		Shape: []int{1, 2}}})
	require.NoError(t, err)
	require.NoError(t, w.WriteRanges(name, [][2]int{{0, 1}, {0, 2}}, make([]byte, 8)))
	require.NoError(t, w.Commit())
	f, err := OpenFile(filepath.Join(dir, "pytorch_lora_weights.safetensors"))
	require.NoError(t, err)
	defer f.Close()
	require.Equal(t, "pt", f.metadata["format"])
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(f.metadata["lora_adapter_metadata"]), &got))
	require.EqualValues(t, 3, got["transformer.r"])
	require.EqualValues(t, 5, got["transformer.lora_alpha"])
	require.Equal(t, []any{"blocks.0.attn1.to_q"}, got["transformer.target_modules"])
	require.Equal(t, "LORA", got["transformer.peft_type"])
	require.Nil(t, got["transformer.task_type"])
	require.Len(t, f.Tensors(), 1)
}
