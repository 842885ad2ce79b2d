package grad

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// rule is an operation with its operands: activations that come by ports, and parameters, whose names begin with w.
type rule struct {
	shapes map[string][]int
	build  func(t *Tape, v map[string]*Value) *Value
}

// rules are the operations whose gradients have several legs, or one that may be left out.
func rules() map[string]rule {
	type s = map[string][]int
	cu := func(t *Tape) *Value { return t.Data("cu", tensor.I32, 3) }
	all := layerRules()
	maps.Copy(all, diffusionRules())
	maps.Copy(all, imageRules())
	maps.Copy(all, map[string]rule{
		"linear": {s{"x": {6, 4}, "w": {4, 4}, "wb": {4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Linear(v["x"], v["w"], v["wb"])
		}},
		"linear32": {s{"x": {6, 4}, "w": {4, 4}, "wb": {4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Linear32(v["x"], v["w"], v["wb"])
		}},
		"rmsnorm": {s{"x": {6, 4}, "w": {4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.RMSNormPlus(v["x"], v["w"], 1e-6, 1)
		}},
		"layernorm": {s{"x": {6, 4}, "w": {4}, "wb": {4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.LayerNorm(v["x"], v["w"], v["wb"], 1e-6)
		}},
		"swiglu": {s{"g": {6, 4}, "u": {6, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.SwiGLU(v["g"], v["u"])
		}},
		"bounded": {s{"g": {6, 4}, "u": {6, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.BoundedGLU(v["g"], v["u"], 7, 1.7)
		}},
		"mul": {s{"a": {6, 4}, "b": {6, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Mul(v["a"], v["b"])
		}},
		"add and scale": {s{"a": {6, 4}, "b": {6, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Add(t.Scale(v["a"], 3), v["b"])
		}},
		"concat": {s{"a": {6, 4}, "b": {6, 2}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Concat(1, v["a"], v["b"])
		}},
		"rope": {s{"x": {6, 2, 4}}, func(t *Tape, v map[string]*Value) *Value {
			cos, sin := t.RopeTable(t.Data("pos", tensor.I32, 6), t.Data("inv", tensor.F32, 2), 1)
			return t.Rope(v["x"], cos, sin, true)
		}},
		"attention": {s{"q": {6, 2, 4}, "k": {6, 1, 4}, "v": {6, 1, 4}, "wsink": {1, 2}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Attention(v["q"], v["k"], v["v"], cu(t), cu(t), AttentionConfig{Scale: 0.5,
				Causal: true,
				Sink:   v["wsink"]})
		}},
		"plain attention": {s{"q": {6, 2, 4}, "k": {6, 2, 4}, "v": {6, 2, 4}}, func(t *Tape,
			v map[string]*Value) *Value {
			return t.Attention(v["q"], v["k"], v["v"], cu(t), cu(t), AttentionConfig{Scale: 0.5, Cap: 2})
		}},
	})
	return all
}

// layerRules are those of the layers of some families.
func layerRules() map[string]rule {
	type s = map[string][]int
	cu := func(t *Tape) *Value { return t.Data("cu", tensor.I32, 3) }
	off := func(t *Tape) *Value { return t.Data("off", tensor.I32, 3) }
	return map[string]rule{
		"causal conv": {s{"x": {6, 4}, "w": {4, 3}}, func(t *Tape, v map[string]*Value) *Value {
			return t.CausalConv(v["x"], v["w"], cu(t))
		}},
		"delta": {s{"q": {6, 1, 2}, "k": {6, 1, 2}, "v": {6, 1, 2}, "a": {6, 1}, "b": {6, 1}, "wd": {1},
			"wb": {1}}, func(t *Tape, v map[string]*Value) *Value {
			g, beta := t.DeltaGates(v["a"], v["b"], v["wd"], v["wb"])
			return t.DeltaRule(v["q"], v["k"], v["v"], g, beta, cu(t), 1e-6)
		}},
		"gate rows": {s{"x": {6, 4}, "z": {6, 1}}, func(t *Tape, v map[string]*Value) *Value {
			return t.GateRows(v["x"], v["z"])
		}},
		"join heads": {s{"a": {6, 1, 2}, "b": {6, 3, 2}}, func(t *Tape, v map[string]*Value) *Value {
			return t.JoinHeads(v["a"], v["b"])
		}},
		"heads through a latent": {s{"x": {6, 4, 5}, "w": {8, 4}, "wb": {12, 4}}, func(t *Tape,
			v map[string]*Value) *Value {
			y := t.HeadLinearT(t.Columns(v["x"], 2, 2), t.OfHeads(v["w"], 2))
			y = t.Concat(2, t.Columns(v["x"], 0, 2), y)
			return t.HeadLinear(t.Columns(y, 1, 4), t.OfHeads(v["wb"], 3))
		}},
		"unit rows": {s{"x": {6, 4}, "w": {3, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Linear(v["x"], t.UnitRows(v["w"]), nil)
		}},
		"join columns": {s{"a": {6, 3, 2}, "b": {6, 3, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Concat(2, v["a"], v["b"])
		}},
		"grouped": {s{"x": {6, 4}, "w": {2, 3, 4}, "wb": {2, 3}}, func(t *Tape, v map[string]*Value) *Value {
			return t.GroupBias(t.GroupedLinear(v["x"], v["w"], off(t)), v["wb"], off(t))
		}},
		"experts": {s{"l": {6, 4}, "x": {6, 2}}, func(t *Tape, v map[string]*Value) *Value {
			r := t.Route(v["l"], nil, cu(t), 2, routing.Router{Normalize: true}, Limit{})
			return t.Mix(t.Spread(v["x"], r), r)
		}},
		"losses of routers": {s{"l": {6, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Add(t.ZLoss(v["l"], cu(t), 0.7), t.BalanceEach(v["l"], cu(t), 2, 0, 0.9))
		}},
		"pooled balance": {s{"l": {6, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.BalanceLoss(t.BalanceSums(v["l"], cu(t), 2, 0), 2, 0.9)
		}},
		"turn": {s{"x": {6, 1, 4}, "w": {2}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Turn(v["x"], v["w"], t.Data("mark", tensor.I32, 6))
		}},
		"mul cols": {s{"x": {6, 4}, "w": {4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.MulCols(v["x"], v["w"])
		}},
		"take, act, join": {s{"x": {6, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Join(t.Act(t.Take(v["x"], t.Data("pos", tensor.I32, 6)), 0), 2)
		}},
		"embed": {s{"w": {5, 4}}, func(t *Tape, v map[string]*Value) *Value {
			return t.Scale(t.Embed(t.Data("pos", tensor.I32, 6), v["w"]), 2)
		}},
	}
}

// given is what rules take of the microbatch.
func given() map[string]*tensor.Tensor {
	return map[string]*tensor.Tensor{"cu": tensor.Of(tensor.I32, []int32{0, 2, 6}, 3),
		"off": tensor.Of(tensor.I32, []int32{0, 4, 6}, 3), "inv": tensor.Of(tensor.F32, []float32{1, 0.3},
			2),
		"pos":  tensor.Of(tensor.I32, []int32{0, 1, 0, 1, 2, 3}, 6),
		"at":   tensor.Of(tensor.I32, []int32{1, 0, -1}, 3),
		"mark": tensor.Of(tensor.I32, []int32{1, 0, 1, 1, 0, 1}, 6), DrawOf: tensor.Of(tensor.I64, []int64{77}, 1)}
}

// wants runs a rule with gradients of some of its operands wanted: the result's product with fixed numbers,
// and the gradients of that.
func (x rule) wants(t *testing.T, values map[string]*tensor.Tensor, wanted []string) (float64,
	map[string][]float32) {
	tape := NewTape(Options{DType: tensor.F32, Frozen: func(p string) bool {
		return !slices.Contains(wanted, p)
	},
		InputGrad: func(p string) bool { return slices.Contains(wanted, p) }})
	run := &Runner{Backend: ref.New(), Pool: tensor.NewPool("rank", 0).Poison(),
		Host:   tensor.NewPool("host", 0),
		Params: map[string]*tensor.Tensor{}, Grads: map[string]*tensor.Tensor{}, Seed: 1}
	v, in := map[string]*Value{}, map[string]*tensor.Tensor{}
	tape.Block(0, func() {
		for name, s := range x.shapes { //lfvet:order each by itself
			if name[0] == 'w' {
				v[name], run.Params[name] = tape.Param(name, s, -1, 1, true), values[name]
			} else {
				v[name], in[name] = tape.Input(name, tensor.F32, s...), values[name]
			}
		}
		tape.Output("y", x.build(tape, v))
	})
	tr := tape.Finish()
	f := run.NewFrame(tr, given(), in, nil)
	step := func(p Phase) {
		for i := range tr.Segments(p) {
			_, err := run.Step(f, p, i, nil)
			require.NoError(t, err)
		}
	}
	step(F)
	y := f.Outputs()["y"]
	r, dy, sum := rand.New(rand.NewPCG(9, 9)), tensor.Make(tensor.F32, y.Shape...), 0.0
	for i := range dy.F32() {
		dy.F32()[i] = float32(r.NormFloat64())
		sum += float64(dy.F32()[i]) * float64(y.F32()[i])
	}
	if len(wanted) == 0 {
		return sum, nil
	}
	f.Gradients(map[string]*tensor.Tensor{"y": dy})
	step(B)
	got := map[string][]float32{}
	for name, g := range f.InputGradients() { //lfvet:order into a map
		got[name] = slices.Clone(g.F32())
	}
	for name, g := range run.Grads { //lfvet:order into a map
		got[name] = slices.Clone(g.F32())
	}
	f.Close()
	return sum, got
}

// TestLegs: gradients of each operand are those of finite differences, and the same bits whichever others
// are wanted; what is not wanted is not there.
func TestLegs(t *testing.T) {
	for name, x := range rules() {
		t.Run(name, func(t *testing.T) {
			var names []string
			values := map[string]*tensor.Tensor{}
			for n := range x.shapes {
				names = append(names, n)
			}
			slices.Sort(names)
			r := rand.New(rand.NewPCG(3, 4))
			for _, n := range names {
				values[n] = tensor.Make(tensor.F32, x.shapes[n]...)
				for i := range values[n].F32() {
					values[n].F32()[i] = float32(r.NormFloat64())
				}
			}
			_, all := x.wants(t, values, names)
			require.Len(t, all, len(names))
			for i, n := range names {
				_, one := x.wants(t, values, names[i:i+1])
				require.Equal(t, map[string][]float32{n: all[n]}, one, "wanted alone")
				if len(names) > 1 {
					_, rest := x.wants(t, values, slices.Delete(slices.Clone(names), i, i+1))
					require.Len(t, rest, len(names)-1)
					for m, g := range rest {
						require.Equal(t, all[m], g, "%s without %s", m, n)
					}
				}
				scale := 0.0
				for _, g := range all[n] {
					scale = max(scale, math.Abs(float64(g)))
				}
				require.Positive(t, scale, "the result depends on %s", n)
				for k := range all[n] {
					const h = 1.0 / 256
					v := values[n].F32()
					at := v[k]
					v[k] = at + h
					up, _ := x.wants(t, values, nil)
					v[k] = at - h
					down, _ := x.wants(t, values, nil)
					v[k] = at
					// float32 sums of results near 1, over 2h, and the third derivative
					require.InDelta(t, (up-down)/(2*h), all[n][k], 3e-3*max(1, scale), "%s[%d]", n, k)
				}
			}
		})
	}
}

// TestRopeForms: pairs that are turned are those of neighbours, or those of both halves of a head.
func TestRopeForms(t *testing.T) {
	for interleaved, pairs := range map[bool][2]int{true: {0, 1}, false: {0, 2}} {
		tape := NewTape(Options{DType: tensor.F32, NoGrad: true})
		cos, sin := tape.RopeTable(tape.Data("pos", tensor.I32, 6), tape.Data("inv", tensor.F32, 2), 1)
		tape.Output("y", tape.Rope(tape.Input("x", tensor.F32, 6, 1, 4), cos, sin, interleaved))
		tr := tape.Finish()
		run := &Runner{Backend: ref.New(), Pool: tensor.NewPool("rank", 0)}
		x := tensor.Make(tensor.F32, 6, 1, 4)
		const row = 5 // at position 3, where the first pair turns by 3
		x.F32()[4*row+pairs[0]] = 1
		f := run.NewFrame(tr, given(), map[string]*tensor.Tensor{"x": x}, nil)
		for i := range tr.Segments(F) {
			_, err := run.Step(f, F, i, nil)
			require.NoError(t, err)
		}
		y := f.Outputs()["y"].F32()[4*row:]
		require.InDelta(t, math.Cos(3), y[pairs[0]], 1e-6)
		require.InDelta(t, math.Sin(3), y[pairs[1]], 1e-6)
	}
}

// TestTrim: padding of the last parts of a table goes, by rows and by columns.
func TestTrim(t *testing.T) {
	run := &Runner{Backend: ref.New(), Pool: tensor.NewPool("rank", 0)}
	part := func() *tensor.Tensor {
		x, err := run.Pool.New("part", tensor.F32, 2, 2)
		require.NoError(t, err)
		copy(x.F32(), []float32{1, 2, 3, 4})
		return x
	}
	for axis, want := range map[int][]float32{0: {1, 2}, 1: {1, 3}} {
		parts := []*tensor.Tensor{part(), part(), part()}
		run.trim(parts, axis, 3)
		require.Equal(t, []float32{1, 2, 3, 4}, parts[0].F32())
		require.Equal(t, want, parts[1].F32())
		shape := []int{2, 2}
		shape[axis] = 1
		require.Equal(t, shape, parts[1].Shape)
		require.Zero(t, parts[2].Len(), "all of it is padding")
		for _, p := range parts {
			p.Release()
		}
	}
	require.Zero(t, run.Pool.Live())
}
