package quant

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// TestIgnored: what stays is named as modules are, by name or by a pattern: those of models of text, and those of
// models whose files have other names (LLaVA, InternVL), and of no other module.
func TestIgnored(t *testing.T) {
	matches := func(list []string, module string) bool {
		return slices.ContainsFunc(list, func(entry string) bool {
			pattern, ok := strings.CutPrefix(entry, "re:")
			return ok && regexp.MustCompile(pattern).MatchString(module) || entry == module
		})
	}
	require.Equal(t, []string{"model.embed_tokens", "lm_head"}, ignored([]string{"model.embed_tokens", "lm_head"}))
	list := ignored([]string{"language_model.lm_head", "language_model.model.layers.1.mlp.up_proj",
		"vision_tower.encoder.layers.1.mlp.fc1", "model.language_model.layers.0.x"})
	for module, want := range map[string]bool{"lm_head": true, "model.language_model.layers.1.mlp.up_proj": true,
		"language_model.model.layers.1.mlp.up_proj": true, "model.vision_tower.encoder.layers.1.mlp.fc1": true,
		"vision_tower.encoder.layers.1.mlp.fc1": true, "model.language_model.layers.0.x": true,
		"model.language_model.layers.1.mlp.down_proj": false, "model.vision_tower.layers.1.mlp.up_proj": false,
		"model.vision_tower.encoder.layers.1.mlp.fc10": false, "model.vision_tower.encoder.layers.11.mlp.fc1": false} {
		require.Equal(t, want, matches(list, module), module)
	}
}

// TestTiedHead: a head that is a table's has no tensor, and is named among the modules that stay.
func TestTiedHead(t *testing.T) {
	for _, form := range []string{"int4", "int8", "nvfp4"} {
		_, config, err := Quantize(quantSource(t, checkpoint.BF16), form, func(name string) bool { return name == "a.weight" })
		require.NoError(t, err)
		var c struct{ Ignore []string }
		require.NoError(t, json.Unmarshal(config, &c))
		require.Contains(t, c.Ignore, "lm_head", form)
	}
}
