package all

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// TestCubicTaps: rows and weights of torch.nn.functional.interpolate(mode="bicubic"), whose kernel has
// a = -0.75: halfway between two rows -0.09375 and 0.59375, a border's row for those beyond it.
func TestCubicTaps(t *testing.T) {
	rows, weights := family.CubicTaps(0, 1, 4) // the middle of four rows
	require.Equal(t, []int32{0, 1, 2, 3}, rows)
	require.InDeltaSlice(t, []float32{-0.09375, 0.59375, 0.59375, -0.09375}, weights, 1e-6)
	rows, weights = family.CubicTaps(0, 4, 4) // a row itself
	require.Equal(t, []int32{0, 0, 1, 2}, rows)
	require.InDeltaSlice(t, []float32{0, 1, 0, 0}, weights, 1e-6)
	rows, weights = family.CubicTaps(7, 8, 4) // a quarter beyond the last
	require.Equal(t, []int32{2, 3, 3, 3}, rows)
	require.InDeltaSlice(t, []float32{-0.10546875, 0.87890625, 0.26171875, -0.03515625}, weights, 1e-6)
}

// TestClips: patches of one place in the frames of a clip become one row; an image has no place in time; a
// clip of more frames than there are sinusoids is refused.
func TestClips(t *testing.T) {
	c, err := configs.ReadModel("../testdata/kimi-k2.5")
	require.NoError(t, err)
	m, err := family.Build(c, 8)
	require.NoError(t, err)
	v := m.Vision
	p := family.Images{Grids: []family.Grid{{T: 1, H: 2, W: 2, Spans: [][2]int32{{0, 1}}},
		{T: 2, H: 2, W: 2, Spans: [][2]int32{{2, 3}},
			Video: true}}, Values: make([]float32, 12*v.Tower.PatchDim)}
	require.NoError(t, v.Check(&p))
	data := v.Data(&p, block.Shape{Rows: 4, Dims: map[string]int{block.Patches: 12, block.Frames: 3}})
	require.Equal(t, []int32{0, 4, 12}, data["vis.cu"].I32())
	require.Equal(t, []int32{-1, -1, -1, -1, 0, 0, 0, 0, 1, 1, 1, 1}, data["vis.frame"].I32())
	require.Equal(t, []int32{0, 1, 2, 3, 4, 5, 6, 7, -1, -1, -1, -1}, data["vis.pool.0"].I32())
	require.Equal(t, []int32{-1, -1, -1, -1, 8, 9, 10, 11, -1, -1, -1, -1}, data["vis.pool.1"].I32())
	require.Equal(t, []float32{1, 1, 1, 1, .5, .5, .5, .5, 0, 0, 0, 0}, data["vis.share"].F32())
	require.Equal(t, []int32{0, -1, 1, -1}, data["vis.places"].I32())
	p.Grids[1].T = 5
	p.Values = make([]float32, 24*v.Tower.PatchDim)
	require.ErrorContains(t, v.Check(&p), "5 frames in a clip, want at most 4")
}
