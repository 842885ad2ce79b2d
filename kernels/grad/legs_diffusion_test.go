package grad

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// step is the window of a convolution along one axis.
func step(stride, before, after int) kernels.Window {
	return kernels.Window{Stride: stride, Dilation: 1, Before: before, After: after}
}

// convRules are those of convolutions.
func convRules() map[string]rule {
	type s = map[string][]int
	return map[string]rule{
		"conv": {s{"x": {2, 5, 4}, "w": {4, 4, 3}, "wb": {4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Conv(v["x"], v["w"], v["wb"], step(2, 1, 0))
		}},
		"conv in groups": {s{"x": {2, 3, 4, 4}, "w": {8, 2, 2, 3}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Conv(v["x"], v["w"], nil, step(1, 1, 0), step(1, 1, 1))
		}},
		"conv of a video": {s{"x": {2, 3, 3, 2, 2}, "w": {2, 2, 3, 2, 1}, "wb": {2}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Conv(v["x"], v["w"], v["wb"], step(1, 2, 0), step(1, 0, 0), step(1, 0, 0))
		}},
		"conv of runs": {s{"x": {2, 8, 6, 2}, "w": {4, 2, 3, 3}, "wb": {4}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Conv(t.Runs(v["x"], 1, "halo"), v["w"], v["wb"], step(1, 1, 1), step(1, 1, 1))
		}},
		"conv of frames, twice": {s{"x": {2, 8, 2, 2, 2}, "w": {4, 2, 3, 1, 2}, "wb": {4, 1, 3, 2, 1}},
			func(t *Tape,
				v map[string]*Value) *Value {
				x := t.Conv(t.Runs(v["x"], 1, "halo"), v["w"], nil, step(1, 2, 0), step(1, 0, 0), step(1, 1,
					0))
				return t.Conv(t.Act(x, kernels.SiLU), v["wb"], nil, step(2, 0, 1), step(1, 1, 0), step(1, 0,
					0))
			}},
		"conv of lines, apart": {s{"x": {2, 2, 8, 2}, "w": {2, 2, 1, 2}}, func(t *Tape,
			v map[string]*Value) *Value {
			x := t.Conv(t.Runs(v["x"], 2, "halo"), v["w"], nil, step(1, 0, 0), step(2, 0, 0))
			return t.Conv(x, v["w"], nil, step(1, 0, 0), step(1, -1, 0))
		}},
		"transposed conv": {s{"x": {2, 4, 4}, "w": {4, 2, 4}, "wb": {2}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.ConvTranspose(v["x"], v["w"], v["wb"], 1, []int{1}, step(2, 1, 1))
		}},
		"transposed conv in groups": {s{"x": {2, 4, 4}, "w": {4, 2, 3}, "wb": {4}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.ConvTranspose(v["x"], v["w"], v["wb"], 2, nil, step(2, 1, 1))
		}},
	}
}

// diffusionRules are those of the operations of diffusion models and of convolutions.
func diffusionRules() map[string]rule {
	type s = map[string][]int
	all := convRules()
	maps.Copy(all, map[string]rule{
		"gate": {s{"x": {6, 4}, "y": {6, 4}, "g": {2, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Gate(v["x"], v["y"], v["g"], t.Data("at", tensor.I32, 3))
		}},
		"gate alone, by a parameter": {s{"y": {6, 4}, "w": {2, 4}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Gate(nil, v["y"], v["w"], t.Data("mark", tensor.I32, 6))
		}},
		"attention with a bias": {s{"q": {6, 2, 4}, "k": {6, 1, 4}, "v": {6, 1, 4}, "w": {3, 2}},
			func(t *Tape,
				v map[string]*Value) *Value {
				bias := t.Take(v["w"], t.ConstI32("buckets", []int32{0, 1, 2, 2, 1}))
				cu := t.Data("cu", tensor.I32, 3)
				return t.AttentionBias(v["q"], v["k"], v["v"], cu, cu, bias, 0.5, false)
			}},
		"point loss": {s{"x": {6, 4}}, func(t *Tape, v map[string]*Value) *Value {
			y, one := t.ConstOf("y", make([]float32, 24), 6, 4), t.Const("one", []float32{1, 2, 0})
			l := t.PointLoss(v["x"], y, one, nil, kernels.LogisticLoss, 0)
			return t.Concat(0, l, t.Scale(l, 0.5))
		}},
	})
	for name, norm := range map[string]int{"modulate": kernels.PlainRows,
		"modulate layer norm": kernels.LayerRows,
		"modulate rms norm":   kernels.RMSRows} { //lfvet:order into a map
		m := Modulation{Norm: norm, Eps: 1e-2, Plus: 1}
		all[name] = rule{s{"x": {6, 4}, "a": {2, 4}, "b": {2, 4}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Modulate(v["x"], v["a"], v["b"], t.Data("at", tensor.I32, 3), m)
		}}
		all[name+" by parameters"] = rule{s{"x": {6, 2, 4}, "w": {2, 4}, "wb": {2, 4}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Modulate(v["x"], v["w"], v["wb"], t.Data("at", tensor.I32, 3), m)
		}}
	}
	return all
}

// TestFrequencies are those of diffusers' get_timestep_embedding of 8 numbers, as it printed them: with a
// period of 10000, and with a shift of 1 and a period of 100.
func TestFrequencies(t *testing.T) {
	require.InDeltaSlice(t, []float32{1, 0.1, 0.01, 0.001}, Frequencies(4, 1e4, 0), 1e-8)
	require.InDeltaSlice(t, []float32{1, 0.21544347, 0.046415888, 0.01}, Frequencies(4, 100, 1), 1e-8)
}

// TestRelativeBuckets are those of transformers' UMT5Attention, of 32 buckets and distances up to 128: where
// each bucket begins, going away from the query.
func TestRelativeBuckets(t *testing.T) {
	begins := func(l []int32, from, by int) (out []int) {
		for x := 0; from+by*x >= 0 && from+by*x < len(l); x++ {
			if at := from + by*x; x == 0 || l[at] != l[at-by] {
				out = append(out, x)
			}
		}
		return out
	}
	both, before := RelativeBuckets(32, 128, false), RelativeBuckets(32, 128, true)
	side := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91}
	require.Equal(t, side, begins(both, 128, 1))
	require.Equal(t, side, begins(both, 128, -1))
	require.Equal(t, []int32{15, 1, 0, 17, 31}, []int32{both[0], both[127], both[128], both[129], both[256]})
	require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 19, 21, 24, 27, 31, 35,
		40, 46, 52,
		59, 67, 77, 87, 99, 113}, begins(before, 128, -1))
	require.Equal(t, []int32{31, 0, 0}, []int32{before[0], before[128], before[256]})
}
