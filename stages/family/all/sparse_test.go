package all

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// flows lists the layers that give a port, as >, and take it, as <.
func flows(m *family.Model, port string) (out string) {
	for _, b := range m.Blocks {
		mark := "."
		for _, p := range b.Takes {
			if p == port {
				mark = "<"
			}
		}
		for _, p := range b.Gives {
			if p == port {
				mark = strings.TrimPrefix(mark, ".") + ">"
			}
		}
		out += mark
	}
	return out
}

func tinyGLM(t *testing.T, change func(text string) string) (configs.Model, error) {
	text, err := os.ReadFile("../testdata/glm5/config.json")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(change(string(text))), 0o600))
	return configs.ReadModel(dir)
}

// TestSharedKeys: the keys that layers share, and the losses of their indexers and routers, go from block to
// block of a model whose layers are full, shared, full, shared, of which the last two have experts.
func TestSharedKeys(t *testing.T) {
	c, err := tinyGLM(t, func(s string) string { return s })
	require.NoError(t, err)
	build := func() *family.Model {
		m, err := family.Build(c, 24)
		require.NoError(t, err)
		return m
	}
	m := build()
	require.Equal(t, ".><><.", flows(m, family.ChosenPort))
	require.Equal(t, "......", flows(m, family.LossPort))
	m.Index(block.Indexing{})
	require.Equal(t, "......", flows(m, family.LossPort), "frozen indexers have no loss")
	m.Index(block.Indexing{Scale: 1})
	require.Equal(t, ".>.<>.<", flows(m, family.LossPort))
	m = build()
	m.Balance(block.Balance{Kind: block.LayerBalance, Scale: 1})
	require.Equal(t, "...><><", flows(m, family.LossPort))
	m.Index(block.Indexing{Scale: 1})
	require.Equal(t, ".>.<><><", flows(m, family.LossPort))
	for _, p := range build().Params(nil) {
		require.Equal(t, family.IndexerParam(p.Name) || strings.HasSuffix(p.Name, family.Correction),
			p.Fixed,
			p.Name)
	}
}

// TestIndexerConfigs: every way to say which layers have an indexer, and lists of kinds that cannot be.
func TestIndexerConfigs(t *testing.T) {
	const list = `"indexer_types": [
    "full",
    "shared",
    "full",
    "shared"
  ],`
	with := func(other string) func(string) string {
		return func(s string) string {
			require.Contains(t, s, list)
			return strings.Replace(s, list, other, 1)
		}
	}
	for other, want := range map[string][]string{
		"": nil,
		`"index_topk_freq": 2, "index_skip_topk_offset": 2,`:                             {"full", "full", "shared", "full"},
		`"index_topk_freq": 3, "index_skip_topk_offset": 1, "index_topk_pattern": null,`: {"full", "shared", "shared", "full"},
		`"index_topk_pattern": "FSSF",`:                                                  {"full", "shared", "shared", "full"},
	} {
		c, err := tinyGLM(t, with(other))
		require.NoError(t, err, other)
		require.Equal(t, want, family.Index.Of(c).IndexTypes, other)
	}
	_, err := tinyGLM(t, with(`"index_topk_pattern": 3,`))
	require.ErrorContains(t, err, "index_topk_pattern: 3, want a word")
	_, err = tinyGLM(t, func(s string) string {
		return strings.Replace(s, `"indexed_attention",`, `"full_attention",`, 1)
	})
	require.ErrorContains(t, err, `layer_types: layer 0 is "full_attention", only "indexed_attention" can be`)
	c, err := tinyGLM(t, func(s string) string {
		return strings.Replace(s, `"first_k_dense_replace": 2`, `"first_k_dense_replace": 1`, 1)
	})
	require.NoError(t, err)
	require.Regexp(t, `"mlp_layer_types": \[\s+"dense",\s+"dense",\s+"sparse",\s+"sparse"\s+\]`, string(c.HFConfig("float32")), "the list says it")
}
