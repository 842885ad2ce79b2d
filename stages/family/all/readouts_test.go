package all

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// TestReadoutsAreNoImages: of a model with experts of their own for images, readouts go to those of words,
// although they have no id, as features of images.
func TestReadoutsAreNoImages(t *testing.T) {
	t.Parallel()
	c, err := configs.ReadModel("../testdata/ernie4.5-vl")
	require.NoError(t, err)
	m, err := family.Build(c, 0)
	require.NoError(t, err)
	require.NoError(t, m.ActBy(&configs.Policy{Expert: "l1", ExpertWidth: 4, ExpertHeads: 1, ExpertLayers: 1,
		ExpertActions: 2, ExpertState: 2, ExpertRobots: 1, ExpertReads: 2, Horizon: 1, ViewSize: 8}))
	in := &family.Inputs{Rows: 9, IDs: []int32{5, -1, 6, -1, -1, 7, -1, -1, 8}, Cu: []int32{0, 5, 8, 9},
		More: family.EncodedKey.With(family.More{}, []family.Encoded{{From: 0, Told: 3}, {From: 5, Told: 1}})}
	found := false
	for _, x := range m.Modalities {
		if r, ok := x.(family.Rowed); ok && slices.Contains(r.TokenTensors(), block.KindsOf) {
			found = true
			of := x.Tensors(in, block.Shape{Rows: in.Rows})[block.KindsOf]
			require.Equal(t, []int32{0, 1, 0, 0, 0, 0, 0, 0, 0}, of.I32())
		}
	}
	require.True(t, found)
}
