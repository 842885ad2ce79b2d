package all

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// TestExportRoundTrip: the weights of every golden model, read parameter by parameter and exported, are its checkpoint
// again, byte for byte: fused and renamed tensors, convolutions, and those with an axis more or less than here.
func TestExportRoundTrip(t *testing.T) {
	dirs, err := filepath.Glob("../testdata/*")
	require.NoError(t, err)
	require.Greater(t, len(dirs), 20)
	further, err := filepath.Glob("../../../actors/host/testdata/*-mtp")
	require.NoError(t, err)
	require.Len(t, further, 3)
	for i, dir := range append(dirs, further...) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c, err := configs.ReadModel(dir)
			require.NoError(t, err)
			if i >= len(dirs) {
				c.MTPLayers = 1
			}
			m, err := family.Build(c, 24)
			require.NoError(t, err)
			src, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
			require.NoError(t, err)
			defer src.Close()
			w, err := m.OpenWeights(src, dir)
			require.NoError(t, err)
			out := filepath.Join(t.TempDir(), "out")
			f32 := func(string) string { return "f32" }
			sink, err := checkpoint.NewWriter(out, m.HFTensors(f32), 1<<30)
			require.NoError(t, err)
			require.NoError(t, m.Export(sink, f32, func(p *grad.Param, dst []float32) error {
				have, err := w.Read(p, family.Whole(p), dst)
				require.True(t, have, p.Name)
				return err
			}))
			files, err := filepath.Glob(filepath.Join(out, "*.safetensors"))
			require.NoError(t, err)
			require.Len(t, files, 1)
			got, err := checkpoint.OpenFile(files[0])
			require.NoError(t, err)
			defer got.Close()
			for _, info := range got.Tensors() {
				a, b := make([]byte, info.Bytes), make([]byte, info.Bytes)
				require.NoError(t, got.ReadInto(info.Name, 0, info.Bytes, a))
				require.NoError(t, src.ReadInto(info.Name, 0, info.Bytes, b))
				require.Equal(t, b, a, info.Name)
			}
		})
	}
}

// TestOtherLayout: a checkpoint in a family's second layout is read as the first is, and exported as it came.
func TestOtherLayout(t *testing.T) {
	for dir, c := range map[string]struct{ own, other []string }{
		"../testdata/llava-clip": {[]string{"vision_tower.pre_layrnorm.bias",
			"vision_tower.encoder.layers.2.mlp.fc1.weight"},
			[]string{"vision_tower.vision_model.embeddings.class_embedding",
				"vision_tower.vision_model.encoder.layers.2.mlp.fc1.weight",
				"vision_tower.vision_model.post_layernorm.bias", "language_model.lm_head.weight",
				"multi_modal_projector.linear_1.bias"}},
		"../testdata/llava-onevision1.5": {[]string{"model.visual.class_pos_emb"},
			[]string{"visual.class_pos_emb", "visual.merger.ln_q.weight", "model.layers.0.mlp.up_proj.weight",
				"lm_head.weight"}},
		"../testdata/ernie4.5-vl": {[]string{"model.vision_model.ln.weight",
			"model.layers.1.mlp.gate.weight_1",
			"model.layers.1.mlp.moe_statics.e_score_correction_bias",
			"model.layers.1.mlp.experts.11.up_proj.weight",
			"model.resampler_model.temporal_linear.3.bias"}, []string{"model.vision_tower.ln.weight",
			"model.language_model.layers.1.mlp.vision_moe.gate.weight",
			"model.language_model.layers.1.mlp.text_moe.gate.moe_statics.e_score_correction_bias",
			"model.language_model.layers.1.mlp.vision_moe.experts.gate_up_proj",
			"model.resampler_model.temporal_linear.ln.bias", "model.language_model.norm.weight"}},
		"../testdata/internvl2.5-internlm2": {[]string{"vision_tower.encoder.layer.0.attention.q_proj.weight"},
			[]string{"vision_model.embeddings.class_embedding",
				"vision_model.encoder.layers.1.attn.qkv.weight",
				"vision_model.encoder.layers.1.ls1", "mlp1.3.bias",
				"language_model.model.layers.0.attention.wqkv.weight", "language_model.output.weight"}},
		"../robots/testdata/fastwam": {[]string{"model.mot.layers.1.blocks.action.self_attn.q.weight"},
			[]string{"model.mot.mixtures.action.blocks.1.self_attn.q.weight",
				"model.mot.mixtures.video.head.head.weight"}},
		"../testdata/qwen3-moe": {[]string{"model.layers.0.mlp.experts.gate_up_proj",
			"model.layers.2.mlp.experts.down_proj"}, []string{"model.layers.0.mlp.experts.0.gate_proj.weight",
			"model.layers.0.mlp.experts.5.up_proj.weight", "model.layers.2.mlp.experts.3.down_proj.weight",
			"model.layers.1.mlp.up_proj.weight", "model.layers.2.mlp.gate.weight"}},
	} {
		t.Run(filepath.Base(dir), func(t *testing.T) { otherLayout(t, dir, c.own, c.other) })
	}
}

func otherLayout(t *testing.T, dir string, own, others []string) {
	c, err := configs.ReadModel(dir)
	require.NoError(t, err)
	open := func(dir, file string) (*family.Model, *family.Weights) {
		m, err := family.Build(c, 24)
		require.NoError(t, err)
		src, err := checkpoint.OpenFile(filepath.Join(dir, file))
		require.NoError(t, err)
		t.Cleanup(func() { src.Close() })
		w, err := m.OpenWeights(src, dir)
		require.NoError(t, err)
		return m, w
	}
	export := func(m *family.Model, w *family.Weights) string {
		out, f32 := filepath.Join(t.TempDir(), "out"), func(string) string { return "f32" }
		sink, err := checkpoint.NewWriter(out, m.HFTensors(f32), 1<<30)
		require.NoError(t, err)
		require.NoError(t, m.Export(sink, f32, func(p *grad.Param, dst []float32) error {
			_, err := w.Read(p, family.Whole(p), dst)
			return err
		}))
		return out
	}
	names := func(m *family.Model) (out []string) {
		for _, i := range m.HFShapes() {
			out = append(out, i.Name)
		}
		return
	}
	m, w := open(dir, "model.safetensors")
	require.Subset(t, names(m), own)
	src := *m
	src.Source = m.Other
	other := export(&src, w)
	m2, w2 := open(other, "model.safetensors")
	require.Subset(t, names(m2), others)
	for _, p := range m.Params(nil) {
		a, b := make([]float32, tensor.Len(p.Shape)), make([]float32, tensor.Len(p.Shape))
		for _, x := range []struct {
			w   *family.Weights
			dst []float32
		}{{w, a}, {w2, b}} {
			_, err := x.w.Read(p, family.Whole(p), x.dst)
			require.NoError(t, err)
		}
		require.Equal(t, a, b, p.Name)
	}
	require.FileExists(t, filepath.Join(export(m2, w2), "model.safetensors"))
}
