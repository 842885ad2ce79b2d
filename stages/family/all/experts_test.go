package all

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
)

// listed is a checkpoint of which only the names and shapes are looked at.
type listed struct {
	checkpoint.Source
	infos []checkpoint.Info
}

func (l listed) Tensors() []checkpoint.Info { return l.infos }

// TestMissingExpert: a checkpoint that lacks one expert's matrix, or has one of another shape or one too
// many, is refused by the name of that tensor, whatever layout it has; layers behind the last of GLM 4.5,
// which predict further tokens, are passed over.
func TestMissingExpert(t *testing.T) {
	for _, c := range []struct {
		model, tensor, why string
		change             func(i []checkpoint.Info, at int) []checkpoint.Info
	}{
		{"qwen3-moe", "model.layers.2.mlp.experts.5.up_proj.weight",
			"model.layers.2.mlp.experts.5.up_proj.weight",
			func(i []checkpoint.Info, at int) []checkpoint.Info { return append(i[:at:at], i[at+1:]...) }},
		{"mixtral", "model.layers.0.block_sparse_moe.experts.3.w2.weight", "w2.weight",
			func(i []checkpoint.Info, at int) []checkpoint.Info { i[at].Shape = []int{48, 79}; return i }},
		{"glm4-moe", "model.layers.1.mlp.gate.e_score_correction_bias", "e_score_correction_bias",
			func(i []checkpoint.Info, at int) []checkpoint.Info { i[at].Shape = []int{11}; return i }},
		{"ernie4.5-moe", "model.layers.1.mlp.moe_statics.e_score_correction_bias", "experts.9.",
			func(i []checkpoint.Info, at int) []checkpoint.Info {
				return append(i, checkpoint.Info{Name: "model.layers.1.mlp.experts.9.up_proj.weight",
					Shape: []int{16, 48}})
			}},
		{"glm4-moe", "model.norm.weight", "", func(i []checkpoint.Info, at int) []checkpoint.Info {
			return append(i, checkpoint.Info{Name: "model.layers.3.eh_proj.weight", Shape: []int{48, 96}})
		}},
	} {
		t.Run(c.model+" "+c.tensor, func(t *testing.T) {
			conf, err := configs.ReadModel("../testdata/" + c.model)
			require.NoError(t, err)
			m, err := family.Build(conf, 24)
			require.NoError(t, err)
			infos := m.HFTensors(func(string) string { return "f32" })
			at := -1
			for i := range infos {
				if infos[i].Name == c.tensor {
					at = i
				}
			}
			require.GreaterOrEqual(t, at, 0, c.tensor)
			_, err = m.OpenWeights(listed{infos: c.change(infos, at)}, "hf")
			if c.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.why)
			require.Equal(t, 1, strings.Count(err.Error(), "\n")+1, "%v", err)
		})
	}
}

// TestExpertRegions: the parts that ranks of ep and etp hold are what they read, from experts one by one and
// from all in one tensor.
func TestExpertRegions(t *testing.T) {
	conf, err := configs.ReadModel("../testdata/qwen3-moe")
	require.NoError(t, err)
	m, err := family.Build(conf, 24)
	require.NoError(t, err)
	src, err := checkpoint.OpenFile("../testdata/qwen3-moe/model.safetensors")
	require.NoError(t, err)
	defer src.Close()
	w, err := m.OpenWeights(src, "hf")
	require.NoError(t, err)
	for _, p := range m.Params(nil) {
		if len(p.Shape) != 3 {
			continue
		}
		all := make([]float32, p.Shape[0]*p.Shape[1]*p.Shape[2])
		_, err := w.Read(p, family.Whole(p), all)
		require.NoError(t, err)
		for _, axis := range []int{1, 2} {
			g := family.Region{Cuts: []family.Cut{{Axis: 0, At: 1, Of: 2}, {Axis: axis, At: 1, Of: 2}}, From: 1,
				To: 3}
			iv := g.Intervals(p)
			var want []float32
			family.Places(iv, p.Shape, 0, func(from, n int) { want = append(want, all[from:from+n]...) })
			got := make([]float32, len(want))
			_, err := w.Read(p, g, got)
			require.NoError(t, err)
			require.Equal(t, want, got, "%s %v", p.Name, iv)
		}
	}
}

// turnedExperts shows a checkpoint's experts as published files of Qwen3-VL have them, [in out].
type turnedExperts struct{ checkpoint.Source }

func (s turnedExperts) Tensors() (out []checkpoint.Info) {
	for _, i := range s.Source.Tensors() {
		if strings.Contains(i.Name, ".experts.") {
			i.Shape = []int{i.Shape[0], i.Shape[2], i.Shape[1]}
		}
		out = append(out, i)
	}
	return out
}

func (s turnedExperts) ReadRanges(name string, r [][2]int, dst []byte) error {
	if !strings.Contains(name, ".experts.") {
		return s.Source.ReadRanges(name, r, dst)
	}
	own := make([]byte, len(dst))
	if err := s.Source.ReadRanges(name, [][2]int{r[0], r[2], r[1]}, own); err != nil {
		return err
	}
	rows, cols := r[1][1]-r[1][0], r[2][1]-r[2][0]
	for i := range len(dst) / 4 {
		e, row, col := i/(rows*cols), i/cols%rows, i%cols
		copy(dst[4*i:4*i+4], own[4*(e*rows*cols+col*rows+row):])
	}
	return nil
}

// TestTurnedExperts: experts as [in out], as published, and as [out in], as transformers 5 writes them, are
// told apart by their shape and read as the same numbers, also a rank's part of them.
func TestTurnedExperts(t *testing.T) {
	c, err := configs.ReadModel("../testdata/qwen3-vl-moe")
	require.NoError(t, err)
	own, err := checkpoint.OpenFile("../testdata/qwen3-vl-moe/model.safetensors")
	require.NoError(t, err)
	defer own.Close()
	read := func(src checkpoint.Source, turned bool, g func(p *grad.Param) family.Region) (out [][]float32) {
		m, err := family.Build(c, 8)
		require.NoError(t, err)
		w, err := m.OpenWeights(src, "qwen3-vl-moe")
		require.NoError(t, err)
		for _, p := range m.Params(nil) {
			if len(p.Shape) == 3 {
				n := 1
				for _, iv := range g(p).Intervals(p) {
					n *= iv[1] - iv[0]
				}
				v := make([]float32, n)
				_, err := w.Read(p, g(p), v)
				require.NoError(t, err)
				out = append(out, v)
				require.Equal(t, turned, m.Source(p.Name).Turned)
			}
		}
		return out
	}
	for _, g := range []func(p *grad.Param) family.Region{family.Whole, func(p *grad.Param) family.Region {
		return family.Region{From: 1, To: 3, Cuts: []family.Cut{{Axis: 1, Of: 2, At: 1}}}
	}} {
		require.Equal(t, read(own, false, g), read(turnedExperts{own}, true, g))
	}
}

// TestErnieBeginnings: the tower's names begin in published files as they do not where transformers has
// written them; both are read as the same numbers, and an export has those that it came from.
func TestErnieBeginnings(t *testing.T) {
	c, err := configs.ReadModel("../testdata/ernie4.5-vl")
	require.NoError(t, err)
	own, err := checkpoint.OpenFile("../testdata/ernie4.5-vl/model.safetensors")
	require.NoError(t, err)
	defer own.Close()
	read := func(src checkpoint.Source, name string) (out []float32) {
		m, err := family.Build(c, 8)
		require.NoError(t, err)
		w, err := m.OpenWeights(src, "ernie4.5-vl")
		require.NoError(t, err)
		for _, p := range m.Params(nil) {
			v := make([]float32, tensor.Len(p.Shape))
			_, err := w.Read(p, family.Whole(p), v)
			require.NoError(t, err)
			out = append(out, v...)
		}
		require.Equal(t, name, m.Source("visual.post_norm.weight").Name)
		return out
	}
	require.Equal(t, read(own, "model.vision_model.ln.weight"), read(published{own},
		"vision_model.ln.weight"))
}

// published shows the tower of a file that transformers wrote under its published names.
type published struct{ checkpoint.Source }

func (s published) Tensors() (out []checkpoint.Info) {
	for _, i := range s.Source.Tensors() {
		if rest, ok := strings.CutPrefix(i.Name, "model.vision_model."); ok {
			i.Name = "vision_model." + rest
		}
		out = append(out, i)
	}
	return out
}

func (s published) ReadRanges(name string, r [][2]int, dst []byte) error {
	if strings.HasPrefix(name, "vision_model.") {
		name = "model." + name
	}
	return s.Source.ReadRanges(name, r, dst)
}
