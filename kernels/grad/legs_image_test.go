package grad

import "github.com/lfactor/lfactor/kernels"

// imageRules are those of norms over space and of what changes its size or order.
func imageRules() map[string]rule {
	type s = map[string][]int
	return map[string]rule{
		"group norm": {s{"x": {2, 3, 2, 4}, "w": {4}, "wb": {4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.GroupNorm(v["x"], v["w"], v["wb"], 2, 1e-2)
		}},
		"group norm of lines": {s{"x": {16, 4}, "w": {4}, "wb": {4}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Rows(t.GroupNorm(t.Runs(t.Space(v["x"], 1, 8, 2), 1, "halo"), v["w"], v["wb"], 2, 1e-2))
		}},
		"lines": {s{"x": {16, 4}, "w": {4, 4, 3, 3}}, func(t *Tape, v map[string]*Value) *Value {
			x := t.Runs(t.Space(v["x"], 1, 8, 2), 1, "halo")
			x = t.Space(t.Rows(t.Resize(x, kernels.Nearest, 16, 4)), 1, 16, 4)
			return t.Rows(t.Conv(x, v["w"], nil, step(2, 1, 1), step(2, 1, 1)))
		}},
		"frozen norm": {s{"x": {2, 3, 4}, "w": {4}, "wb": {4}}, func(t *Tape, v map[string]*Value) *Value {
			mean, variance := t.Const("mean", []float32{0.3, -1, 0, 2}), t.Const("var", []float32{1, 0.5, 2,
				3})
			return t.FrozenNorm(v["x"], v["w"], v["wb"], mean, variance, 1e-2)
		}},
		"channel norm": {s{"x": {2, 3, 2, 4}, "w": {4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.ChannelNorm(v["x"], v["w"])
		}},
		"resize and pool": {s{"x": {2, 3, 2, 4}}, func(t *Tape, v map[string]*Value) *Value {
			w := kernels.Window{Size: 2, Stride: 1, Dilation: 1, After: 1}
			x := t.Resize(t.Resize(v["x"], kernels.Bilinear, 5, 3), kernels.Nearest, 6, 6)
			return t.Add(t.Pool(x, kernels.MeanIn, w, w), t.Pool(x, kernels.MaxPool, w, w))
		}},
		"pad, turn and view": {s{"x": {2, 3, 2, 4}}, func(t *Tape, v map[string]*Value) *Value {
			x := t.Pad(v["x"], Edge{1, 2}, Edge{-1, 0})
			x = t.Reshape(t.Permute(x, 0, 3, 1, 2), 2, 4, 6)
			return t.Space(t.Rows(x), 2, 2, 2)
		}},
	}
}
