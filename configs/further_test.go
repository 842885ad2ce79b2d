package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFurtherLayers: Qwen 3.5's config.json counts its layers for further tokens under a name of its own,
// which is passed over with a note of the key that trains them; checkpoints have a place for one.
func TestFurtherLayers(t *testing.T) {
	text, err := os.ReadFile("../stages/family/testdata/qwen3.5/config.json")
	require.NoError(t, err)
	load := func(args ...string) (*Config, error) {
		dir := t.TempDir()
		with := strings.Replace(string(text), "{", `{"mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,`, 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(with), 0o644))
		return Load(Request{Text: []byte("{}"), Args: append([]string{"model.path=" + dir, "data.paths=[x]",
			"train.steps=1"}, args...)})
	}
	c, err := load()
	require.NoError(t, err)
	require.Zero(t, c.Model.MTPLayers)
	require.Contains(t, strings.Join(c.Notices, "\n"), "mtp_num_hidden_layers = 1: those layers are passed "+
		"over and not trained; to train them, set model.overrides.num_nextn_predict_layers")
	c, err = load("model.overrides.num_nextn_predict_layers=1")
	require.NoError(t, err)
	require.Equal(t, 1, c.Model.MTPLayers)
	_, err = load("model.overrides.num_nextn_predict_layers=2")
	require.ErrorContains(t, err, "2, but checkpoints of qwen3_5_text have 1 at most; try 1")
}
