package tenants

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestReach: what bounds a slot's numbers without looking at them does, by rates, means and gradients of any
// size; an ordinary step is sure to stay finite, and one that might not is not.
func TestReach(t *testing.T) {
	x := trainer(t, specs()["dense"], 2, cpu.New(2))
	defer x.Close()
	r := rand.New(rand.NewPCG(1, 1))
	sure, looked := 0, 0
	for k := range 200 {
		if k%20 == 0 {
			x.Begin(0, uint64(k))
			require.Equal(t, x.reaches(0), x.reach[0])
			require.Positive(t, x.reach[0].weight)
		}
		a := Adam{LR: math.Pow(10, 1-12*r.Float64()), Beta1: 1 - math.Pow(10, -8*r.Float64()),
			Beta2: 1 - math.Pow(10, -8*r.Float64()), Eps: math.Pow(10, -44*r.Float64()*r.Float64()),
			Decay: r.Float64() * 3}
		w := work(0, 0, k)
		scale := float32(math.Pow(10, 20*r.Float64()*r.Float64()))
		for i := range w.Data {
			for j := range w.Data[i].Weights {
				w.Data[i].Weights[j] *= scale
			}
		}
		all(t, x, []*Work{w})
		if !x.filled[0] { // its weights are so great by now that the loss is no number
			x.Begin(0, uint64(k))
			continue
		}
		_, yes := x.reach[0].behind(a, x.norm(0), x.steps[0]+1)
		if _, _, err := x.Step(0, a); err != nil {
			require.False(t, yes, "%+v, scale %g: %v", a, scale, err)
			continue
		}
		is, bound := x.reaches(0), x.reach[0]
		require.LessOrEqual(t, is.weight, bound.weight, "%+v", a)
		require.LessOrEqual(t, is.first, bound.first, "%+v", a)
		require.LessOrEqual(t, is.second, bound.second, "%+v", a)
		if yes {
			sure++
		} else {
			looked++
			require.Equal(t, is, bound)
		}
	}
	require.Greater(t, sure, 50)
	require.Greater(t, looked, 20)
	at := reach{weight: 1}
	for n := range int64(100000) { // nobody looks in a run of ordinary length
		next, yes := at.behind(adam, 100, n+1)
		require.True(t, yes)
		at = next
	}
	_, yes := reach{weight: 1}.behind(Adam{LR: 1e-4, Beta1: 0.9, Beta2: 0.95}, 1, 1)
	require.False(t, yes, "0/0 where a gradient was always 0")
	_, yes = reach{weight: 1}.behind(adam, math.Inf(1), 1)
	require.False(t, yes)
}

// TestClipped: a slot's gradient is cut to the norm that was asked for, and left as it is where it has less or no bound
// was given. The first moment of the first step is (1−β1) times what the step saw.
func TestClipped(t *testing.T) {
	for _, clip := range []float64{0, 0.25, 1e6} {
		x := trainer(t, specs()["dense"], 2, cpu.New(1))
		x.Begin(1, 3)
		all(t, x, []*Work{work(1, 0, 0)})
		grads := map[string][]float32{}
		for _, p := range x.params {
			g := x.slice(x.run.Grads[p.Name], 1)
			grads[p.Name] = append([]float32(nil), g.F32()...)
			g.Release()
		}
		norm, _, err := x.Step(1, Adam{LR: 0.01, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Clip: clip})
		require.NoError(t, err)
		require.Greater(t, norm, 0.25, "the bound would do nothing")
		by := 0.1
		if clip == 0.25 {
			by = 0.1 * 0.25 / norm
		}
		for name, g := range grads {
			m := x.slice(x.moments[name][0], 1)
			for i, v := range m.F32() {
				require.InDelta(t, by*float64(g[i]), float64(v), 1e-6*math.Abs(by*float64(g[i]))+1e-12, "%s %d, clip %g", name, i, clip)
			}
			m.Release()
		}
		x.Close()
	}
}

// TestCut: data are cut where the next one would not fit in, and never within one.
func TestCut(t *testing.T) {
	for rows, want := range map[int][][2]int{3: {{0, 1}, {1, 2}, {2, 3}, {3, 4}}, 4: {{0, 1}, {1, 2}, {2, 4}},
		5: {{0, 2}, {2, 4}}, 9: {{0, 4}}, 8: {{0, 3}, {3, 4}}} {
		w := &Work{}
		for _, n := range []int{3, 2, 3, 1} {
			w.Data = append(w.Data, Datum{Tokens: make([]int32, n)})
		}
		w.cut(rows)
		require.Equal(t, want, w.pieces, "%d rows", rows)
	}
}

// TestWritten: an adapter of a wrong size, or with a number that is none, is refused whole, and one that fits is there.
func TestWritten(t *testing.T) {
	x := trainer(t, specs()["dense"], 2, cpu.New(1))
	defer x.Close()
	x.Begin(1, 3)
	before := weights(t, x, 1)
	for name, alter := range map[string]func([]float32) []float32{
		"short": func(v []float32) []float32 { return v[1:] },
		"nan":   func(v []float32) []float32 { v[len(v)-1] = float32(math.NaN()); return v }} {
		left := len(x.params)
		require.Error(t, x.Write(1, func(_ string, shape []int) ([]float32, error) {
			v := make([]float32, tensor.Len(shape))
			if left--; left == 0 { // the last, behind others that are right
				v = alter(v)
			}
			return v, nil
		}), name)
		require.Equal(t, before, weights(t, x, 1), name)
	}
	require.NoError(t, x.Write(1, func(_ string, shape []int) ([]float32, error) {
		v := make([]float32, tensor.Len(shape))
		for i := range v {
			v[i] = 0.5
		}
		return v, nil
	}))
	for _, v := range weights(t, x, 1) {
		require.Equal(t, float32(0.5), v)
	}
}
