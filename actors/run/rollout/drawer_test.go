package rollout

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

// TestSpoiltWeights: weights that are no numbers draw nothing, which is an error of the run.
func TestSpoiltWeights(t *testing.T) {
	m := family.Decoder("spoilt", family.Spec{Layers: 1, Hidden: 8, Inter: 8, Heads: 2, KV: 1, HeadDim: 4,
		Vocab: 9,
		Eps:   1e-6, Rope: block.Rope{Dim: 4, Theta: 10000}})
	g, err := sample.New(m, nil, tensor.F32, ref.New(), tensor.NewPool("spoilt", 0),
		func(_ *grad.Param, _ family.Region, dst []float32) error {
			for i := range dst {
				dst[i] = float32(math.NaN())
			}
			return nil
		})
	require.NoError(t, err)
	e, err := sample.NewEngine(g, sample.EngineOptions{Pages: 4})
	require.NoError(t, err)
	defer e.Close()
	d := &Drawer{Engine: e}
	require.NoError(t, d.submit([]draft{{Index: 3, Prompt: []int32{1, 2}, Most: 4}}, func([]draft) {
		t.Error("the answer is not drawn")
	}))
	require.ErrorContains(t, d.step(), "a logit of answer 3 is no number")
}
