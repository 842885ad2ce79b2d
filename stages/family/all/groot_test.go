package all

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
)

// TestChunksFit: a chunk of more actions than a row of what is read whole has is refused with the file of a
// model, and not in the first step.
func TestChunksFit(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Gr00tN1d6", "Gr00tN1d7"} {
		_, err := readGroot(t, kind, `"action_horizon": 255`)
		require.NoError(t, err, kind)
		_, err = readGroot(t, kind, `"action_horizon": 256`)
		require.ErrorContains(t, err, "chunk_size: 256 actions, and the model gives 255 at most", kind)
	}
	for _, model := range []string{"groot/n1.5", "act/aloha", "xvla/base", "diffusion/pusht"} {
		_, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte("model: {name: " + model + "}\n"),
			Args: []string{"data.paths=[/nowhere]", "data.tokenizer=/nowhere", "data.seq_len=256",
				"model.overrides.chunk_size=256"}})
		require.ErrorContains(t, err, "256 actions, and the model gives 255 at most", model)
	}
}

// readGroot reads a file of NVIDIA's with some settings.
func readGroot(t *testing.T, kind, settings string) (configs.Model, error) {
	dir := t.TempDir()
	text := `{"model_type": "` + kind + `", ` + settings + `}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
	return configs.ReadModel(dir)
}
