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

// moreCase is every seventh number of a matrix after 200 steps of another program's optimizer.
type moreCase struct {
	Shape              []int
	Weights, Evaluated []float64
	Fixed              *bool // of Adafactor: steps of the rate itself
}

// drawn are bench/golden/optimizers_more.py's numbers of [-1, 1).
func drawn(n, salt int) []float32 {
	out := make([]float32, n)
	for i := range out {
		x := (i+1)*2654435761 + (salt+1)*40503*(i%97+3)
		out[i] = float32((x>>8)%65536-32768) / 32768
	}
	return out
}

// turned makes the direction of a whole parameter.
func turned(c Config, b kernels.Backend, o *Optimizer, grad, p, hyper, clip *tensor.Tensor,
	state []*tensor.Tensor) {
	square := tensor.Make(tensor.F64, 1)
	b.Run(&kernels.Call{Op: kernels.SumSquares, In: []*tensor.Tensor{p}, Out: []*tensor.Tensor{square}})
	of := func(t *tensor.Tensor) *tensor.Tensor {
		return t.Alias(append([]int{1}, append(t.Shape, 1)[:2]...)...)
	}
	with := Turned{Hyper: hyper, Clip: clip, Square: square}
	for _, s := range state {
		with.State = append(with.State, of(s))
	}
	o.Turning.Turn(c, b, of(grad), with)
}

// trained has 200 steps of an optimizer on the gradients of that script.
func (m *moreCase) trained(t *testing.T, b kernels.Backend, c Config) (p *tensor.Tensor,
	state []*tensor.Tensor) {
	t.Helper()
	o, err := c.For(Subject{Shape: m.Shape, Layer: true})
	require.NoError(t, err)
	n := tensor.Len(m.Shape)
	p = tensor.Of(tensor.F32, drawn(n, 1000), m.Shape...)
	for i := range o.State {
		f := o.Form(i)
		state = append(state, tensor.Make(f.Type, f.Shape(m.Shape)...))
	}
	hyper, clip := tensor.Make(tensor.F64, kernels.HyperLen), tensor.Make(tensor.F64, kernels.ClipLen)
	clip.F64()[kernels.ClipFactor] = 1
	for step := range 200 {
		g := drawn(n, step)
		for i := range g {
			g[i] = (g[i] + 0.25) / float32(int(1)<<(i%11))
		}
		lr := 0.01
		if m.Fixed != nil && !*m.Fixed {
			lr = 0.05
		}
		o.Hyper(c, lr, int64(step+1), hyper.F64())
		grad := tensor.Of(tensor.F32, g, m.Shape...)
		if m.Fixed != nil {
			turned(c, b, &o, grad, p, hyper, clip, state)
		}
		o.Apply(b, grad, hyper, clip, p, state, nil, false)
	}
	return p, state
}

// TestMoreGolden holds optimizers to schedulefree's, torchao's, torch's and transformers' after 200 steps within 1e-4
// of the largest weights, float32 sums of 200 steps, and moments in eight bits to the same numbers of the map.
func TestMoreGolden(t *testing.T) {
	text, err := os.ReadFile("testdata/more.json") // bench/golden/optimizers_more.py
	require.NoError(t, err)
	var g struct {
		Signed, Unsigned [256]float64
		ScheduleFree     moreCase `json:"schedule_free"`
		Eight            moreCase
		Adafactor        []moreCase
	}
	require.NoError(t, json.Unmarshal(text, &g))
	signed, unsigned := kernels.DynamicMap(true), kernels.DynamicMap(false)
	for i := range 256 {
		require.Equal(t, float32(g.Signed[i]), signed[i])
		require.Equal(t, float32(g.Unsigned[i]), unsigned[i])
	}
	c := Config{Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1}
	far := func(want []float64, got []float32, by float64) (n int) {
		for i, x := range want {
			if d := float64(got[7*i]) - x; d > by || d < -by {
				n++
			}
		}
		return n
	}
	for name, b := range map[string]kernels.Backend{"ref": ref.New(), "cpu": cpu.New(2)} {
		c.Name = "schedule_free"
		p, state := g.ScheduleFree.trained(t, b, c)
		require.Zero(t, far(g.ScheduleFree.Weights, p.F32(), 1e-4), name)
		require.Zero(t, far(g.ScheduleFree.Evaluated, state[2].F32(), 1e-4), name)
		c8 := c
		c8.Name, c8.Moments, c8.Block = "adamw", EightBit, 256
		p, state = g.Eight.trained(t, b, c8)
		require.Len(t, state, 4)
		require.Equal(t, []int{16, 2}, state[2].Shape)
		require.Zero(t, far(g.Eight.Weights, p.F32(), 1e-4), name)
		require.Len(t, g.Adafactor, 6)
		for _, m := range g.Adafactor {
			a := Config{Name: "adafactor", Decay: 0.1, Adafactor: Adafactor{Power: 0.8, Above: 1,
				Floor: 1e-3}}
			if *m.Fixed {
				a.Adafactor.Above, a.Adafactor.Fixed = 0.7, true
			}
			p, state = m.trained(t, b, a)
			require.Len(t, state, len(m.Shape))
			require.Zero(t, far(m.Weights, p.F32(), 1e-4), "%s %v %v", name, m.Shape, *m.Fixed)
		}
	}
}

// TestEightBits: what is near to a number of the map is kept as that, by the rule of its nearest, and state
// takes a quarter of that in float32.
func TestEightBits(t *testing.T) {
	c := Config{Name: "adamw", Moments: EightBit, Block: 256}
	for _, x := range []struct {
		shape []int
		per   int
	}{{[]int{64, 64}, 64}, {[]int{8, 4, 128}, 128}, {[]int{16, 768}, 256}, {[]int{16, 11008}, 256},
		{[]int{100, 50}, 0},
		{[]int{63, 64}, 0}, {[]int{8192}, 0}} {
		o, err := c.For(Subject{Shape: x.shape})
		require.NoError(t, err)
		if x.per == 0 {
			require.Len(t, o.State, 2, "%v", x.shape)
			require.EqualValues(t, 8000, o.StateBytes(1000))
			continue
		}
		require.Equal(t, []string{"exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale"}, o.State)
		require.Equal(t, x.per, o.Form(2).Per, "%v", x.shape)
		require.EqualValues(t, 2048+8*1024/x.per, o.StateBytes(1024))
	}
	_, err := Config{Name: "adamw", Moments: EightBit, Block: 256,
		Average: Averaging{Decay: 0.9}}.For(Subject{Shape: []int{64, 64}})
	require.NoError(t, err)
}

// TestShare: the weights of schedule-free averages are the squares of the largest rates until then.
func TestShare(t *testing.T) {
	l := LR{Style: "constant", Max: 2, Warmup: 2}
	require.InDeltaSlice(t, []float64{0, 1, 4. / 5, 4. / 9}, []float64{l.share(1), l.share(2), l.share(3),
		l.share(4)}, 1e-15)
	require.Equal(t, 0.8, l.share(3), "asked again")
	require.Equal(t, 0.25, LR{}.share(4))
}
