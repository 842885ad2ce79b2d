package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// TestPromptsAlone: of a model whose prompts see each other both ways, a sample's loss is the same alone,
// and in a microbatch beside others with images or without, so that neither train.micro_batch nor plan.dp changes it.
func TestPromptsAlone(t *testing.T) {
	t.Parallel()
	g, want := openFast(t)
	whole := *g.made
	whole.More = family.More{}
	var parts []family.Microbatch
	for i := range want.Samples {
		from, to := whole.Cu[i], whole.Cu[i+1]
		parts = append(parts, family.Microbatch{IDs: whole.IDs[from:to], Targets: whole.Targets[from:to],
			Positions: whole.Positions[from:to], Weights: whole.Weights[from:to], Cu: []int32{0, to - from},
			Images: between(whole.Images, from, to)})
		text := parts[len(parts)-1]
		text.IDs, text.Images = append([]int32(nil), text.IDs...), family.Images{}
		for k, id := range text.IDs {
			if id < 0 { // an image was there
				text.IDs[k] = int32(5 + k%7)
			}
		}
		parts = append(parts, text)
	}
	given := int32(0) // tokens of a sequence that see no prompt's, where the model is told of how many do
	loss := func(all ...family.Microbatch) float64 {
		mb := family.Microbatch{Cu: []int32{0}}
		var told []int32
		for _, p := range all {
			at := int32(len(mb.IDs))
			mb.IDs, mb.Targets = append(mb.IDs, p.IDs...), append(mb.Targets, p.Targets...)
			mb.Positions, mb.Weights = append(mb.Positions, p.Positions...), append(mb.Weights, p.Weights...)
			mb.Cu = append(mb.Cu, int32(len(mb.IDs)))
			told = append(told, int32(len(p.IDs))-given)
			for _, x := range p.Images.Grids {
				x.Spans = [][2]int32{{x.Spans[0][0] + at, x.Spans[0][1] + at}}
				mb.Images.Grids = append(mb.Images.Grids, x)
			}
			mb.Images.Values = append(mb.Images.Values, p.Images.Values...)
		}
		if given > 0 {
			mb.More = family.PromptsKey.With(mb.More, told)
		}
		g.made = &mb
		out, _ := g.forward(goldenBackends["cpu"](), tensor.F32, false)
		return out
	}
	for given = range int32(2) {
		sum := 0.0
		for _, p := range parts {
			sum += loss(p)
		}
		require.InEpsilon(t, sum, loss(parts...), 1e-6)
		require.InEpsilon(t, sum, loss(parts[0], parts[1])+loss(parts[3], parts[2]), 1e-6)
		require.InEpsilon(t, loss(parts[1])+loss(parts[3]), loss(parts[1], parts[3]), 1e-6)
	}
}
