package tenants

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/cpu"
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
