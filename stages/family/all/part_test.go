package all

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// TestParts: every composed golden model's tower and decoder are found in checkpoints of their own, in each layout that
// such have and below a prefix, and are what the whole model's checkpoint has; nothing else is read from there.
func TestParts(t *testing.T) {
	dirs, err := filepath.Glob("../testdata/*")
	require.NoError(t, err)
	tested := 0
	for _, dir := range dirs {
		c, err := configs.ReadModel(dir)
		require.NoError(t, err)
		m, err := family.Build(c, 24)
		require.NoError(t, err)
		if m.Vision == nil {
			continue
		}
		src, err := checkpoint.OpenFile(filepath.Join(dir, "model.safetensors"))
		require.NoError(t, err)
		defer src.Close()
		whole, err := m.OpenWeights(src, dir)
		require.NoError(t, err)
		for part, layouts := range m.Alone {
			for i, layout := range layouts {
				for _, prefix := range []string{"", "some.model."} {
					name := strings.Join([]string{filepath.Base(dir), part, prefix, string(rune('0' + i))},
						" ")
					t.Run(name, func(t *testing.T) {
						alone := reexport(t, m, whole, func(param string) family.Source {
							s := m.Source(param)
							if m.Component(param) == part {
								s = layout(param)
								s.Name = prefix + s.Name
							}
							return s
						})
						w, err := m.OpenPart(part, alone, "alone")
						require.NoError(t, err)
						tested++
						for _, p := range m.Params(nil) {
							all := family.Whole(p)
							want, got := make([]float32, tensor.Len(p.Shape)), make([]float32,
								tensor.Len(p.Shape))
							_, err := whole.Read(p, all, want)
							require.NoError(t, err)
							have, err := w.Read(p, all, got)
							require.NoError(t, err)
							require.Equal(t, m.Component(p.Name) == part, have, p.Name)
							if have {
								require.Equal(t, want, got, p.Name)
							}
						}
					})
				}
			}
		}
	}
	require.Greater(t, tested, 24)
}

// reexport writes a model's weights under the names of another layout.
func reexport(t *testing.T, m *family.Model, w *family.Weights,
	source func(string) family.Source) checkpoint.Source {
	named := *m
	named.Source = source
	out := filepath.Join(t.TempDir(), "out")
	f32 := func(string) string { return "f32" }
	sink, err := checkpoint.NewWriter(out, named.HFTensors(f32), 1<<30)
	require.NoError(t, err)
	require.NoError(t, named.Export(sink, f32, func(p *grad.Param, dst []float32) error {
		_, err := w.Read(p, family.Whole(p), dst)
		return err
	}))
	src, err := checkpoint.OpenDir(out)
	require.NoError(t, err)
	t.Cleanup(func() { _ = src.Close() })
	return src
}

// TestPartVocabulary: a decoder's checkpoint may know fewer tokens than the model, whose other rows stay as they were,
// in whatever region is read; a tensor of another width and a checkpoint without the part are errors.
func TestPartVocabulary(t *testing.T) {
	const dir = "../testdata/siglip-llama"
	c, err := configs.ReadModel(dir)
	require.NoError(t, err)
	src, err := checkpoint.OpenDir(dir)
	require.NoError(t, err)
	defer src.Close()
	few := c.Vocab
	c.Vocab += 6
	m, err := family.Build(c, 24)
	require.NoError(t, err)
	w, err := m.OpenPart(family.Foundation, src, dir)
	require.NoError(t, err)
	for _, p := range m.Params(nil) {
		if p.Name != family.EmbedName+".weight" && p.Name != family.HeadName+".weight" {
			continue
		}
		for r := range 2 {
			g := family.Region{From: r * p.Shape[0] / 2, To: (r + 1) * p.Shape[0] / 2}
			row, rows, _, cols := g.Box(p)
			got := make([]float32, rows*cols)
			for i := range got {
				got[i] = 77
			}
			have, err := w.Read(p, g, got)
			require.NoError(t, err)
			require.True(t, have)
			for i := range rows {
				require.Equal(t, row+i >= few, got[i*cols] == 77, "row %d", row+i)
			}
		}
	}
	c.Hidden *= 2
	wide, err := family.Build(c, 24)
	require.NoError(t, err)
	_, err = wide.OpenPart(family.Foundation, src, dir)
	require.ErrorContains(t, err, "the model needs")
	dense, err := checkpoint.OpenDir("../testdata/llama2")
	require.NoError(t, err)
	defer dense.Close()
	_, err = m.OpenPart(family.Encoder, dense, "../testdata/llama2")
	require.ErrorContains(t, err, "image_encoder")
}
