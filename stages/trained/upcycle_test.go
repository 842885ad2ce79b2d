package trained

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// TestUpcycle: the directory of an upcycled model opens as one of its family, each expert has the bytes of
// its layer's MLP, and nothing is written of a model that has no mixture.
func TestUpcycle(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "up")
	for _, name := range []string{"config.json", "model.safetensors"} {
		text, err := os.ReadFile("../../stages/family/testdata/qwen3/" + name)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(src, name), text, 0o600))
	}
	require.NoError(t, Upcycle(src, dst, 4, 2, 7))
	c, err := configs.ReadModel(dst)
	require.NoError(t, err)
	k := family.Mixture.Of(c)
	require.Equal(t, []any{"qwen3_moe", 4, 2, 80, true}, []any{c.ModelType, k.Experts, k.ExpertsEach,
		k.ExpertWidth, k.NormTopK})
	m, err := family.Build(c, 0)
	require.NoError(t, err)
	up, err := checkpoint.OpenDir(dst)
	require.NoError(t, err)
	defer up.Close()
	_, err = m.OpenWeights(up, dst)
	require.NoError(t, err)
	dense, err := checkpoint.OpenDir(src)
	require.NoError(t, err)
	defer dense.Close()
	read := func(s checkpoint.Source, name string, rows, cols int) []byte {
		b := make([]byte, 4*rows*cols)
		require.NoError(t, s.ReadRanges(name, [][2]int{{0, rows}, {0, cols}}, b))
		return b
	}
	for _, e := range []string{"0", "3"} {
		require.Equal(t, read(dense, "model.layers.1.mlp.up_proj.weight", 80, 48), read(up,
			"model.layers.1.mlp.experts."+e+".up_proj.weight", 80, 48))
		require.Equal(t, read(dense, "model.layers.0.mlp.down_proj.weight", 48, 80), read(up,
			"model.layers.0.mlp.experts."+e+".down_proj.weight", 48, 80))
	}
	other := filepath.Join(t.TempDir(), "none")
	require.ErrorContains(t, Upcycle(dst, other, 4, 2, 7),
		"model_type qwen3_moe: there is no family of mixtures")
	require.NoDirExists(t, other)
}
