package optim

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestOptimizersGolden holds every optimizer to PyTorch's after 200 steps with weight decay within 1e-4
// relative: float32 sums of 200 steps.
func TestOptimizersGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/optimizers.json") // bench/golden/optimizers.py
	require.NoError(t, err)
	var g struct {
		Start []float32
		Grads [][]float32
		Cases map[string]struct {
			Args struct {
				LR, Eps, Momentum float64
				Betas             []float64
				Decay             float64 `json:"weight_decay"`
			}
			Weights []float64
		}
		Muon []muonCase
	}
	require.NoError(t, json.Unmarshal(text, &g))
	for _, name := range Names() {
		want, ok := g.Cases[name]
		if !ok {
			continue // one that a program of its own has added
		}
		o, err := Get(name)
		require.NoError(t, err)
		c := Config{Name: name, Eps: want.Args.Eps, Momentum: want.Args.Momentum, Decay: want.Args.Decay}
		if len(want.Args.Betas) == 2 {
			c.Beta1, c.Beta2 = want.Args.Betas[0], want.Args.Betas[1]
		}
		for bn, b := range map[string]kernels.Backend{"ref": ref.New(), "cpu": cpu.New(1)} {
			p := tensor.Of(tensor.F32, append([]float32{}, g.Start...), len(g.Start))
			var state []*tensor.Tensor
			for range o.State {
				state = append(state, tensor.Make(tensor.F32, len(g.Start)))
			}
			hyper, clip := tensor.Make(tensor.F64, kernels.HyperLen), tensor.Make(tensor.F64,
				kernels.ClipLen)
			clip.F64()[kernels.ClipFactor] = 1
			for i, x := range g.Grads {
				o.Hyper(c, want.Args.LR, int64(i+1), hyper.F64())
				o.Apply(b, tensor.Of(tensor.F32, x, len(x)), hyper, clip, p, state, nil, false)
			}
			for i, v := range p.F32() {
				require.InEpsilon(t, want.Weights[i], float64(v), 1e-4, "%s on %s", name, bn)
			}
		}
	}
	require.Len(t, g.Cases, 3)
	require.Len(t, g.Muon, 3)
	for _, m := range g.Muon {
		m.check(t)
	}
}

// muonCase is a matrix after 60 steps of torch.optim.Muon.
type muonCase struct {
	Shape   []int
	Scale   string
	Plain   bool
	Start   []float32
	Grads   [][]float32
	Weights []float64
}

func (m muonCase) check(t *testing.T) {
	t.Helper()
	o, err := Get("muon")
	require.NoError(t, err)
	require.True(t, o.Takes(Subject{Shape: m.Shape, Layer: true}))
	require.False(t, o.Takes(Subject{Shape: m.Shape}))
	require.False(t, o.Takes(Subject{Shape: m.Shape, Layer: true, Taps: true}))
	c := Config{Decay: 0.1, Muon: Muon{Momentum: 0.9, Steps: 5, Plain: m.Plain, Scale: m.Scale}}
	for bn, b := range map[string]kernels.Backend{"ref": ref.New(), "cpu": cpu.New(1)} {
		p := tensor.Of(tensor.F32, append([]float32{}, m.Start...), m.Shape...)
		state := []*tensor.Tensor{tensor.Make(tensor.F32, m.Shape...)}
		hyper, clip := tensor.Make(tensor.F64, kernels.HyperLen), tensor.Make(tensor.F64, kernels.ClipLen)
		clip.F64()[kernels.ClipFactor] = 1
		for i, x := range m.Grads {
			g := tensor.Of(tensor.F32, append([]float32{}, x...), m.Shape...)
			o.Hyper(c, 0.02, int64(i+1), hyper.F64())
			hyper.F64()[kernels.HyperScale] = o.Turning.Scale(c, m.Shape[0], m.Shape[1])
			o.Turning.Direct(c, b, g, hyper, clip, state)
			o.Turning.Turn(c, b, g, Turned{})
			o.Apply(b, g, hyper, clip, p, state, nil, false)
		}
		for i, v := range p.F32() {
			require.InDelta(t, m.Weights[i], float64(v), 1e-4, "muon of %v on %s", m.Shape, bn)
		}
	}
}
