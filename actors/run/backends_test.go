package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology"
)

// TestDeviceOfRank: the encoder's own ranks, which come behind the decoder's, have a device of their own;
// only explicit GPUs are joined by a library, and a device that this program lacks is a fault of the key that names it.
func TestDeviceOfRank(t *testing.T) {
	r := &Run{cfg: &configs.Config{Run: configs.Run{Device: "cuda"}},
		layout: &layout.Layout{Design: &layout.Design{Mesh: topology.Grid(2, 1, 1)}}}
	p := &r.cfg.Run.Plan
	p.Encoder.Device = "same"
	require.Equal(t, []string{"cuda", "cuda"}, []string{r.device(1), r.device(2)})
	p.Encoder.Device = "cpu"
	require.Equal(t, []string{"cuda", "cpu"}, []string{r.device(1), r.device(2)})
	require.True(t, joins("cuda"))
	require.False(t, joins("cuda:1"), "all on one")
	require.False(t, joins("auto"))
	require.False(t, joins("cpu"))

	p.Encoder.Device, r.cfg.Run.Device = "abacus", "cpu"
	_, _, err := backends(r, []int{0, 1, 2})
	require.ErrorContains(t, err, "plan.encoder.device: device \"abacus\": this build has")
}
