package grad_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
)

// apart is how many segments lie between the issue of each communication of a phase and the segment that awaits it,
// by the name of its operation; 0 is none. It checks that each is awaited once, by a later segment.
func apart(t *testing.T, segs []grad.Segment) map[string][]int {
	out, seen := map[string][]int{}, map[grad.Issued]bool{}
	for i, s := range segs {
		for _, at := range s.Await {
			require.Less(t, at.Segment, i)
			require.False(t, seen[at], "%v is awaited twice", at)
			seen[at] = true
			name := segs[at.Segment].Comm[at.Comm].Op.Name
			out[name] = append(out[name], i-at.Segment-1)
		}
	}
	for i, s := range segs {
		for k := range s.Comm {
			require.True(t, seen[grad.Issued{Segment: i, Comm: k}])
		}
	}
	return out
}

// TestTwoPhases: without overlap every communication is awaited by the next segment. With it, parameters are
// gathered while the block before works, gradients are reduced behind the following blocks, and a sum of
// input gradients hides behind weight gradients.
func TestTwoPhases(t *testing.T) {
	c := small
	c.layers = 4
	for _, o := range []grad.Options{
		{Mesh: []grad.MeshAxis{{Name: "dp", Size: 2, Data: true, Zero: true}}, ShardGrads: true,
			ShardParams: true},
		{Mesh: []grad.MeshAxis{{Name: "tp", Size: 2}}},
	} {
		plain := c.stage(o, 0, 4)
		if o.ShardParams {
			gathers := 0
			for _, s := range plain.F {
				if len(s.Comm) > 0 {
					gathers++
				}
			}
			require.Equal(t, 4+2, gathers, "one cut a block, one each for embedding and head")
		}
		for _, segs := range [][]grad.Segment{plain.F, plain.B, plain.I, plain.W} {
			for _, l := range apart(t, segs) {
				require.Zero(t, slices.Max(l))
			}
		}
		o.Overlap = true
		late := c.stage(o, 0, 4)
		for _, segs := range [][]grad.Segment{late.F, late.I, late.W} {
			apart(t, segs)
		}
		b := apart(t, late.B)
		if o.ShardGrads {
			require.Positive(t, slices.Max(apart(t, late.F)["unshard"]))
			require.Positive(t, slices.Max(b["unshard"]))
			require.Positive(t, slices.Max(b["reduce"]))
		} else {
			require.Positive(t, slices.Max(b["convert"]))
		}
		require.NotEqual(t, plain.Hash(), late.Hash(), "ranks must agree on it")
	}
}
