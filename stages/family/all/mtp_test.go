package all

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// TestFurtherTensors: the tensors `mtp.*` of Qwen3.5 27B are those of the published file's header, by name
// and shape; a run that does not train the layer passes them over, and without that layer others are not.
func TestFurtherTensors(t *testing.T) {
	want := map[string][]int{
		"mtp.fc.weight": {5120, 10240}, "mtp.norm.weight": {5120},
		"mtp.pre_fc_norm_embedding.weight": {5120}, "mtp.pre_fc_norm_hidden.weight": {5120},
		"mtp.layers.0.input_layernorm.weight": {5120}, "mtp.layers.0.post_attention_layernorm.weight": {5120},
		"mtp.layers.0.self_attn.q_norm.weight": {256}, "mtp.layers.0.self_attn.k_norm.weight": {256},
		"mtp.layers.0.self_attn.q_proj.weight": {12288, 5120},
		"mtp.layers.0.self_attn.k_proj.weight": {1024, 5120},
		"mtp.layers.0.self_attn.v_proj.weight": {1024, 5120},
		"mtp.layers.0.self_attn.o_proj.weight": {5120, 6144},
		"mtp.layers.0.mlp.gate_proj.weight":    {17408, 5120}, "mtp.layers.0.mlp.up_proj.weight": {17408,
			5120},
		"mtp.layers.0.mlp.down_proj.weight": {5120, 17408}}
	build := func(layers string) *family.Model {
		c, err := configs.Load(configs.Request{Args: []string{"model.name=qwen/3.5-27b", "model.init=random",
			"data.kind=chat", "data.paths=[x]", "data.tokenizer=y",
			"model.overrides.num_nextn_predict_layers=" + layers}})
		require.NoError(t, err)
		m, err := family.Build(c.Model, 64)
		require.NoError(t, err)
		return m
	}
	m, without := build("1"), build("0")
	got := map[string][]int{}
	infos := m.HFTensors(func(string) string { return "bf16" })
	for _, i := range infos {
		if strings.HasPrefix(i.Name, "mtp") {
			got[i.Name] = i.Shape
		}
	}
	require.Equal(t, want, got)
	require.Equal(t, int64(26895998464), without.Count())
	_, err := without.OpenWeights(listed{infos: slices.Clone(infos)}, "hf")
	require.NoError(t, err)
	_, err = m.OpenWeights(listed{infos: slices.DeleteFunc(infos, func(i checkpoint.Info) bool {
		return i.Name == "mtp.fc.weight"
	})}, "hf")
	require.ErrorContains(t, err, "mtp.fc.weight")
}

// TestFurtherLayouts: experts of the layer for a further token are published one by one or in one tensor,
// whatever those of the layers are; an export has the layout that was read.
func TestFurtherLayouts(t *testing.T) {
	for _, layers := range []bool{false, true} {
		for _, ahead := range []bool{false, true} {
			c, err := configs.ReadModel("../testdata/qwen3.5-moe")
			require.NoError(t, err)
			c.MTPLayers = 1
			m, err := family.Build(c, 24)
			require.NoError(t, err)
			params := m.Params(nil)
			of := func(other bool) (out []checkpoint.Info) {
				if other {
					return family.Shapes(params, m.Other)
				}
				return family.Shapes(params, m.Source)
			}
			isAhead := func(i checkpoint.Info) bool { return strings.HasPrefix(i.Name, "mtp.") }
			infos := append(slices.DeleteFunc(of(layers), isAhead),
				slices.DeleteFunc(of(ahead), func(i checkpoint.Info) bool { return !isAhead(i) })...)
			_, err = m.OpenWeights(listed{infos: slices.Clone(infos)}, "hf")
			require.NoError(t, err)
			names := func(infos []checkpoint.Info) (out []string) {
				for _, i := range infos {
					out = append(out, i.Name)
				}
				slices.Sort(out)
				return
			}
			require.Equal(t, names(infos), names(m.HFShapes()), "%v %v", layers, ahead)
		}
	}
}

// TestFurtherPlaces: places of features move within their sequence, and what would come from behind its end is none.
func TestFurtherPlaces(t *testing.T) {
	got := family.FurtherLayer([]int32{-1, 0, 1, -1, 2, 3, -1}, []int32{0, 3, 4, 7}, 1).I32()
	require.Equal(t, []int32{0, 1, -1, -1, 3, -1, -1}, got)
	require.Equal(t, []int32{1, -1, -1, -1, -1, -1, -1}, family.FurtherLayer([]int32{-1, 0, 1, -1, 2, 3, -1},
		[]int32{0, 3, 4, 7}, 2).I32())
}
