package all

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTypedKeysOfTowers: keys of composed models that are no settings themselves are refused, at their line,
// where they are ill-typed or out of range; with the same file as it is a model is read.
func TestTypedKeysOfTowers(t *testing.T) {
	for _, c := range []struct{ family, section, key, value, why string }{
		{"llava-clip", "", "vision_feature_select_strategy", "5", "5, want a word"},
		{"llava-clip", "", "vision_feature_select_strategy", `["default"]`, `["default"], want a word`},
		{"llava-siglip", "", "vision_feature_select_strategy", "false", "false, want a word"},
		{"llava-dinov2", "vision_config", "mlp_ratio", `"4"`, `"4", want a number`},
		{"llava-dinov2", "vision_config", "mlp_ratio", "-4", "-4, want at least 0"},
		{"llava-dinov2", "vision_config", "hidden_size", "true", "true, want an integer"},
		{"gemma3-vision", "", "mm_tokens_per_image", `"4"`, `"4", want an integer`},
		{"gemma3-vision", "", "boi_token_index", "1.5", "1.5, want an integer"},
		{"gemma3-vision", "", "eoi_token_index", "-2", "-2, want at least 0"},
		{"gemma3-vision", "vision_config", "patch_size", "0", "0, want at least 1"},
		{"internvl2.5", "", "downsample_ratio", `"half"`, `"half", want a number`},
		{"internvl2.5", "", "downsample_ratio", "0", "0, want 1 divided by a whole number"},
		{"internvl2.5", "", "downsample_ratio", "0.3", "0.3, want 1 divided by a whole number"},
		{"internvl2.5", "", "downsample_ratio", "-0.5", "-0.5, want at least 0"},
		{"internvl2.5", "vision_config", "norm_type", "3", "3, want a word"},
		{"internvl2.5", "vision_config", "norm_type", `"batch"`, `"batch" is not known`},
		{"qwen2-vl", "vision_config", "mlp_ratio", `"2"`, `"2", want a number`},
		{"qwen2-vl", "vision_config", "embed_dim", `[32]`, `[32], want an integer`},
	} {
		text, err := os.ReadFile(filepath.Join("..", "testdata", c.family, "config.json"))
		require.NoError(t, err)
		_, err = readText(t, string(text))
		require.NoError(t, err, c.family)
		var file map[string]any
		require.NoError(t, json.Unmarshal(text, &file))
		inner, name := file, c.key
		if c.section != "" {
			inner, name = file[c.section].(map[string]any), c.section+"."+c.key
		}
		inner[c.key] = json.RawMessage(c.value)
		text, err = json.MarshalIndent(file, "", " ")
		require.NoError(t, err)
		_, err = readText(t, string(text))
		require.ErrorContains(t, err, name+": ", "%s: %s = %s", c.family, name, c.value)
		require.Regexp(t, `config\.json:[1-9][0-9]*: `+name, err.Error())
		if !strings.Contains(err.Error(), c.why) && !strings.Contains(compacted(err.Error()),
			compacted(c.why)) {
			t.Errorf("%s: %s = %s: %v", c.family, name, c.value, err)
		}
	}
}

func compacted(s string) string { return strings.NewReplacer(" ", "", "\n", "").Replace(s) }

// TestBaichuanLength: the length that alone tells the larger Baichuan is a whole number, and null is none.
func TestBaichuanLength(t *testing.T) {
	const head = "{\n\"model_type\": \"baichuan\", \"vocab_size\": 125696,\n"
	for _, c := range []struct{ line, why string }{
		{`"model_max_length": "4096"`, `config.json:3: model_max_length: "4096", want an integer`},
		{`"model_max_length": 0`, "config.json:3: model_max_length: 0, want at least 1"},
		{`"model_max_length": 4096.5`, "config.json:3: model_max_length: 4096.5, want an integer"},
	} {
		_, err := readText(t, head+c.line+"}")
		require.ErrorContains(t, err, c.why, c.line)
	}
	for _, line := range []string{`"model_max_length": null`, `"max_position_embeddings": null`} {
		m, err := readText(t, head+line+"}")
		require.NoError(t, err, line)
		require.Equal(t, 4096, m.MaxPositions, line)
	}
}
