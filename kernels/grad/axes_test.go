package grad_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
)

// axes are mesh axes of every kind that a decoder's plan may have; "dpo" and "dp" are data parallelism in
// two axes, of which ZeRO uses one (HSDP).
var axes = []grad.MeshAxis{
	{Name: "dpo", Size: 2, Data: true},
	{Name: "dp", Size: 3, Data: true, Zero: true},
	{Name: "cp", Size: 2, Rows: true, Context: true},
	{Name: "tp", Size: 2},
	{Name: "tp", Size: 2, Rows: true},
	{Name: "tp", Size: 4},
	{Name: "ep", Size: 2, Fold: 1}, // no dense value is placed on it
}

// TestAxes holds every pair and every triple of mesh axes, under the policies that communicate, to one device.
func TestAxes(t *testing.T) {
	base := newWorld(t, small, small.stage(grad.Options{}, 0, 2))
	loss, want := base.step([]int{0, 2}, grad.Options{})
	var meshes [][]grad.MeshAxis
	for i, a := range axes {
		for j, b := range axes[i+1:] {
			meshes = append(meshes, []grad.MeshAxis{a, b})
			for _, c := range axes[i+j+2:] {
				meshes = append(meshes, []grad.MeshAxis{a, b, c})
			}
		}
	}
	ran := 0
	for _, mesh := range meshes {
		seen := map[string]bool{}
		for _, a := range mesh {
			seen[a.Name] = true
		}
		if len(seen) < len(mesh) {
			continue // an axis beside itself
		}
		for k, o := range []grad.Options{{}, {Recompute: grad.RecomputeFull}, {ShardGrads: true},
			{ShardGrads: true, ShardParams: true, Recompute: grad.RecomputeSelective}} {
			o.Mesh = mesh
			w := newWorld(t, small, small.stage(o, 0, 2))
			w.split = k%2 == 1
			cuts := []int{0, 1, 2}
			if k == 2 {
				cuts = []int{0, 2}
			}
			name := fmt.Sprintf("%v policy %d", mesh, k)
			got, g := w.step(cuts, o)
			require.InDelta(t, loss, got, 2e-6, name)
			compare(t, name, g, want)
			o.Overlap = true
			w = newWorld(t, small, small.stage(o, 0, 2))
			w.split = k%2 == 1
			late, gl := w.step(cuts, o)
			require.Equal(t, got, late, name)
			require.Equal(t, g, gl, "%s: overlap changes no bit", name)
			ran++
		}
	}
	require.Greater(t, ran, 100)
}

// TestGradientSums: a gradient says over which axes it is still to be summed. Data parallelism in two axes
// leaves the outer one to the optimizer step where each microbatch is reduced over the inner; tokens sharded
// over cp leave every gradient partial there.
func TestGradientSums(t *testing.T) {
	mesh := []grad.MeshAxis{axes[0], axes[1], axes[2], axes[4]}
	for _, c := range []struct {
		o         grad.Options
		norm, own []int // of a norm's weight, which is replicated, and of a matrix, which is sharded
	}{
		{grad.Options{Mesh: mesh}, []int{0, 1, 2, 3}, []int{0, 1, 2}},
		{grad.Options{Mesh: mesh, ShardGrads: true}, []int{0, 2, 3}, []int{0, 2}},
	} {
		for _, p := range small.stage(c.o, 0, 2).Params {
			switch p.Name {
			case "0.ln1":
				require.Equal(t, c.norm, p.Grad.Sums())
			case "0.wq":
				require.Equal(t, c.own, p.Grad.Sums())
				require.Equal(t, []int{3}, p.Place.Cuts(0))
			}
		}
	}
}
