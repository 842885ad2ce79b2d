package all

import (
	"os"
	"path/filepath"
	"strings"
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

// TestGrootFiles: settings of GR00T's parts that change the arithmetic are refused, wherever in a file they
// lie, and keys that nobody knows are named.
func TestGrootFiles(t *testing.T) {
	t.Parallel()
	const six, seven = "Gr00tN1d6", "Gr00tN1d7"
	for _, c := range []struct{ kind, settings, want string }{
		{six, `"text_config": {"attention_bias": true}`, "text_config.attention_bias: true, only false"},
		{six, `"text_config": {"rope_scaling": {"rope_type": "yarn"}}`, "text_config.rope_scaling"},
		{six, `"text_config": {"hidden_act": "relu"}`, "text_config.hidden_act"},
		{six, `"text_config": {"layer_types": ["full_attention", "sliding_attention"]}`, "text_config.layer_types"},
		{six, `"vision_config": {"use_rope": true}`, "vision_config.use_rope: true, only false"},
		{six, `"vision_config": {"layer_norm_eps": 1e-5}`, "vision_config.layer_norm_eps"},
		{six, `"formalize_language": false`, "formalize_language: false, only true"},
		{seven, `"formalize_language": false`, "formalize_language: false, only true"},
		{seven, `"vl_self_attention_cfg": {"attention_bias": false}`, "vl_self_attention_cfg.attention_bias"},
	} {
		_, err := readGroot(t, c.kind, c.settings)
		require.ErrorContains(t, err, c.want)
	}
	for _, kind := range []string{six, seven} {
		for _, bad := range []string{`"interleave_self_attention": false`, `"norm_type": "layer_norm"`,
			`"positional_embeddings": "sinusoidal"`, `"norm_eps": 1e-6`} {
			_, err := readGroot(t, kind, `"diffusion_model_cfg": {`+bad+`}`)
			require.ErrorContains(t, err, "diffusion_model_cfg.", kind+bad)
		}
		_, err := readGroot(t, kind, `"formalize_language": true, "diffusion_model_cfg": {"dropout": 0.2,
			"norm_eps": 0.00001, "positional_embeddings": null, "interleave_self_attention": true}`)
		require.NoError(t, err, kind)
	}
	_, err := readGroot(t, six, `"text_config": {"layer_types": ["full_attention"], "attention_dropout": 0.0}`)
	require.NoError(t, err)
	c, err := configs.Load(configs.Request{File: "run.yaml", Text: []byte("{}\n"),
		Args: []string{"data.paths=[/nowhere]", "data.tokenizer=/nowhere", "data.seq_len=16", "model.path=" +
			grootFolder(t, six, `"text_config": {"bogus": 1, "eos_token_id": 2}, "vision_config": {"vague": 1}`)}})
	require.NoError(t, err)
	notices := strings.Join(c.Notices, "\n")
	require.Contains(t, notices, "not read: text_config.bogus")
	require.Contains(t, notices, "not read: vision_config.vague")
	require.NotContains(t, notices, "eos_token_id")
}

// grootFolder has a file of NVIDIA's with some settings.
func grootFolder(t *testing.T, kind, settings string) string {
	t.Helper()
	dir := t.TempDir()
	text := `{"model_type": "` + kind + `", ` + settings + `}`
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
	return dir
}

// readGroot reads such a file.
func readGroot(t *testing.T, kind, settings string) (configs.Model, error) {
	t.Helper()
	return configs.ReadModel(grootFolder(t, kind, settings))
}
