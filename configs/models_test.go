package configs

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPublishedModels reads every published model and compares it with what PyTorch counts for it (testdata/
// parameters.json and active.json, by bench/golden/family_counts.py).
func TestPublishedModels(t *testing.T) {
	text, err := os.ReadFile("testdata/parameters.json")
	require.NoError(t, err)
	var counts map[string]int
	require.NoError(t, json.Unmarshal(text, &counts))
	text, err = os.ReadFile("testdata/active.json")
	require.NoError(t, err)
	var active map[string]int
	require.NoError(t, json.Unmarshal(text, &active))
	names := Models()
	require.Len(t, names, len(counts))
	for _, name := range names {
		m, err := Published(name)
		require.NoError(t, err)
		require.Equal(t, counts[name], m.Parameters, name)
		require.Equal(t, active[name], m.Active, name)
		require.NotEmpty(t, m.Source, name)
		require.NotZero(t, m.MaxPositions, name)
		for _, other := range m.Names {
			same, err := Published(other)
			require.NoError(t, err)
			require.Equal(t, m, same)
		}
	}
}

// TestLoongForgeNames holds that the names of dense decoders, with encoders and without, of LoongForge's
// registry are known.
func TestLoongForgeNames(t *testing.T) {
	for _, name := range []string{"llama2-7b", "llama2-13b", "llama2-70b", "llama3-8b", "llama3-70b",
		"llama3.1-8b", "llama3.1-70b", "llama3.1-405b",
		"qwen-1.8b", "qwen-7b", "qwen-14b", "qwen-72b", "qwen1.5-0.5b", "qwen1.5-1.8b", "qwen1.5-4b",
		"qwen1.5-7b", "qwen1.5-14b", "qwen1.5-32b", "qwen1.5-72b",
		"qwen2-0.5b", "qwen2-1.5b", "qwen2-7b", "qwen2-72b", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b",
		"qwen2.5-7b", "qwen2.5-14b", "qwen2.5-32b", "qwen2.5-72b",
		"qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "qwen3-14b", "qwen3-32b", "internlm2.5-8b",
		"internlm2.5-20b", "mimo",
		"qwen2.5-vl-3b", "qwen2.5-vl-7b", "qwen2.5-vl-32b", "qwen2.5-vl-72b", "internvl2.5-8b",
		"internvl2.5-26b", "internvl2.5-38b", "internvl2.5-78b",
		"internvl3.5-8b", "internvl3.5-14b", "internvl3.5-38b", "llava-onevision-1.5-4b"} {
		_, err := Published(name)
		require.NoError(t, err, name)
	}
}

var writeConfigs = flag.String("hfconfigs", "",
	"directory to write the config.json of every published model to, for bench/golden/config_read.py")

// TestHFConfigRoundTrip writes every published model as its family's config.json and reads it back.
func TestHFConfigRoundTrip(t *testing.T) {
	for _, name := range Models() {
		want, err := Published(name)
		require.NoError(t, err)
		dir := t.TempDir()
		if *writeConfigs != "" {
			dir = filepath.Join(*writeConfigs, name)
			require.NoError(t, os.MkdirAll(dir, 0o755))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), want.HFConfig("bfloat16"), 0o644))
		got, err := ReadModel(dir)
		require.NoError(t, err, name)
		want.Parameters, want.Active, want.Names, want.Source = 0, 0, nil, ""
		if want.ModelType == "qwen" {
			want.EOS = nil // its file does not say
		}
		require.Equal(t, want, got, name)
	}
}

// TestExampleRuns loads the example run files.
func TestExampleRuns(t *testing.T) {
	files, err := filepath.Glob("runs/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 4)
	for _, file := range files {
		_, err := Load(Request{File: file})
		require.NoError(t, err)
	}
}

// TestReadsGoldenConfigs reads the config.json of every golden model: as transformers 5 writes them, and as
// the families that it lacks publish them.
func TestReadsGoldenConfigs(t *testing.T) {
	dirs, err := filepath.Glob("../stages/family/testdata/*/config.json")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(dirs), 13)
	for _, file := range dirs {
		m, err := ReadModel(filepath.Dir(file))
		require.NoError(t, err)
		if !m.Vision.None() {
			// Qwen2-VL and DINOv2 state the MLP's width as a multiple of the tower's.
			inter := 24 + map[string]int{"qwen2_vl": 24, "dinov2": 8}[m.Vision.Kind]
			require.Equal(t, []int{32, 48, 120, 16, inter}, []int{m.Hidden, m.Intermediate, m.Vocab,
				m.Vision.Hidden, m.Vision.Inter}, file)
			continue
		}
		hidden, inter, vocab := 48, "80", 256
		if m.Hidden < 48 { // of cases that are "small" in bench/golden/families
			hidden, inter, vocab = 16, "24", 64
		}
		if m.ModelType == "qwen3_5_moe_text" || m.ModelType == "solar_open" { // which state the width of an expert alone
			inter = value(m, "moe_intermediate_size")
		}
		require.Equal(t, []any{hidden, inter, vocab}, []any{m.Hidden, fmt.Sprint(m.Intermediate), m.Vocab}, file)
		require.Contains(t, []int{4, 6, 8, 12, 16}, m.HeadDim, file)
		switch filepath.Base(filepath.Dir(file)) {
		case "llama3.2":
			require.Equal(t, RopeScaling{Type: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4,
				OriginalMax: 16}, m.RopeScaling)
			require.True(t, m.TieEmbeddings)
			require.Equal(t, 500000.0, m.RopeTheta)
		case "internlm2":
			require.Equal(t, RopeScaling{Type: "dynamic", Factor: 2}, m.RopeScaling)
		case "mimo":
			require.Equal(t, 1, m.MTPLayers)
			require.True(t, m.AttentionBias)
		case "qwen":
			require.Equal(t, 1e-6, m.NormEps)
			require.Equal(t, 4, m.KVHeads)
		}
	}
}

// TestHFDefaults: what a config.json leaves out is transformers' default (CONFIG_MAPPING[family]() of
// version 5.23), and what it says is null is None; what transformers refuses is refused.
func TestHFDefaults(t *testing.T) {
	read := func(text string) (Model, error) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
		return ReadModel(dir)
	}
	for _, c := range []struct {
		text string
		want []any // eps, head_dim, key heads, positions, tied
	}{
		{`{"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8}`,
			[]any{1e-6, 64, 8, 2048, false}},
		{`{"model_type": "qwen2", "hidden_size": 2048}`, []any{1e-6, 64, 32, 32768, false}},
		{`{"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8}`,
			[]any{1e-6, 128, 8, 32768, false}},
		{`{"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": null}`, []any{1e-6, 128, 16, 32768, false}},
		{`{"model_type": "gemma2", "hidden_size": 1024, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 8, "vocab_size": 100}`, []any{1e-6, 256, 4, 8192, true}},
		{`{"model_type": "glm4", "hidden_size": 1024, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 8, "vocab_size": 100}`, []any{1.5625e-07, 128, 2, 131072, false}},
	} {
		m, err := read(c.text)
		require.NoError(t, err, c.text)
		require.Equal(t, c.want, []any{m.NormEps, m.HeadDim, m.KVHeads, m.MaxPositions,
			m.TieEmbeddings}, c.text)
	}
	for text, want := range map[string]string{
		`{"model_type": "llama", "num_hidden_layers": 3, "layer_types": ["full_attention", "full_attention"]}`:                                                    "layer_types: 2 entries for num_hidden_layers = 3",
		`{"model_type": "gemma2", "num_hidden_layers": 3, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 4, "layer_types": ["full_attention"]}`: "layer_types: 1 entries for num_hidden_layers = 3",
		`{"model_type": "llama", "hidden_size": "4096"}`:         `hidden_size: "4096" is text, want a value of type integer`,
		`{"model_type": "llama", "rms_norm_eps": "1e-5"}`:        `rms_norm_eps: "1e-5" is text, want a value of type number`,
		`{"model_type": "llama", "tie_word_embeddings": "true"}`: `tie_word_embeddings: "true" is text, want a value of type boolean`,
	} {
		_, err := read(text)
		require.ErrorContains(t, err, want)
	}
	const windows = `{"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 8, "max_window_layers": 1, "use_sliding_window": `
	slides, err := read(windows + "true}")
	require.NoError(t, err)
	require.Equal(t, []string{"full_attention", "sliding_attention", "sliding_attention"}, slides.LayerTypes)
	require.Equal(t, 8, slides.SlidingWindow)
	plain, err := read(windows +
		`false, "layer_types": ["full_attention", "full_attention", "full_attention"]}`)
	require.NoError(t, err)
	require.Empty(t, plain.LayerTypes)
	require.Zero(t, plain.SlidingWindow)
	m, err := read(`{"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 2.0}}`)
	require.NoError(t, err)
	require.Equal(t, 2048, m.MaxPositions, "the length that dynamic frequencies begin at")
}

// TestHFConfigNumbers: transformers refuses 30 for a float and 256.0 for an integer.
func TestHFConfigNumbers(t *testing.T) {
	m, err := Published("gemma/2-2b")
	require.NoError(t, err)
	text := string(m.HFConfig("bfloat16"))
	for _, want := range []string{`"final_logit_softcapping": 30.0`, `"query_pre_attn_scalar": 256,`,
		`"rms_norm_eps": 1e-06`, `"hidden_activation": "gelu_pytorch_tanh"`} {
		require.Contains(t, text, want)
	}
}

// TestBaichuanGenerations: config.json of the 13B has no max_position_embeddings, and that of the first
// generation, whose head is another, is refused.
func TestBaichuanGenerations(t *testing.T) {
	read := func(text string) (Model, error) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(text), 0o644))
		return ReadModel(dir)
	}
	const rest = `"model_type": "baichuan", "hidden_size": 64, "intermediate_size": 80,
		"num_hidden_layers": 2, "num_attention_heads": 4, "rms_norm_eps": 1e-6, "hidden_act": "silu"`
	m, err := read(`{` + rest + `, "vocab_size": 500, "model_max_length": 2048, "z_loss_weight": 0}`)
	require.NoError(t, err)
	require.Equal(t, []any{"alibi", 2048}, []any{m.Positions, m.MaxPositions})
	m, err = read(`{` + rest + `, "vocab_size": 125696, "model_max_length": 2048,
		"max_position_embeddings": 1024}`)
	require.NoError(t, err)
	require.Equal(t, []any{"rope", 1024}, []any{m.Positions, m.MaxPositions})
	m, err = read(`{` + rest + `, "vocab_size": 125696}`)
	require.NoError(t, err)
	require.Equal(t, []any{"alibi", 4096}, []any{m.Positions, m.MaxPositions})
	_, err = read(`{` + rest + `, "vocab_size": 64000, "max_position_embeddings": 4096}`)
	require.ErrorContains(t, err, "first generation")
	_, err = read(`{` + rest + `, "vocab_size": 500, "z_loss_weight": 0.1}`)
	require.ErrorContains(t, err, "z_loss_weight")
}

// TestRopeNames: rope_scaling is the name of before of rope_parameters, and replaces it whole where it says something,
// as in transformers 5.24 (convert_rope_params_to_dict); rope_theta within either counts before one at the top.
func TestRopeNames(t *testing.T) {
	for _, c := range []struct {
		text, note string
		theta      float64
		kind       string
	}{
		{`"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 5000}, "rope_scaling": null`, "", 5000, "linear"},
		{`"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 5000}, "rope_scaling": {}`, "", 5000, "linear"},
		{`"rope_parameters": {"rope_type": "default", "rope_theta": 5000}, "rope_scaling": {"rope_type": "linear", "factor": 2}`,
			"rope_parameters = ", 10000, "linear"},
		{`"rope_parameters": {"rope_theta": 5000}, "rope_theta": 7000, "rope_scaling": {"type": "linear", "factor": 2}`,
			"rope_parameters = ", 7000, "linear"},
		{`"rope_theta": 7000, "rope_scaling": {"rope_type": "linear", "factor": 2, "rope_theta": 6000}`,
			"rope_theta = 7000 is not read", 6000, "linear"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"model_type": "llama", `+c.text+`}`), 0o600))
		m, err := ReadModel(dir)
		require.NoError(t, err, c.text)
		require.Equal(t, c.theta, m.RopeTheta, c.text)
		require.Equal(t, c.kind, m.RopeScaling.Type, c.text)
		run, err := Load(Request{Args: []string{"model.path=" + dir, "data.paths=x"}})
		require.NoError(t, err)
		require.Equal(t, c.note != "", strings.Contains(strings.Join(run.Notices, "\n"), c.note) && c.note != "", run.Notices)
	}
}
