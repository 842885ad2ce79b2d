package host

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/opaque"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
)

// opaques makes a device for each rank, and closes them.
func opaques(t *testing.T) func(int) kernels.Backend {
	var mu sync.Mutex
	var made []*opaque.Device
	t.Cleanup(func() {
		for _, d := range made {
			require.NoError(t, d.Close())
		}
	})
	return func(rank int) kernels.Backend {
		d := opaque.New(uint64(rank))
		mu.Lock()
		made = append(made, d)
		mu.Unlock()
		return d
	}
}

// TestDeviceGrid trains under every plan of the grid on devices whose memory the host cannot read and whose
// calls run late: the bits are those that the same plan gives under kernels/ref.
func TestDeviceGrid(t *testing.T) {
	models := []*family.Model{tiny(false), tiny(true)}
	for i, v := range sampled(t, gridVariants(), 3, 1) {
		m := models[i%2]
		t.Run(fmt.Sprintf("tie=%v %v", m.Spec.Tie, v), func(t *testing.T) {
			t.Parallel()
			v.overlap = v.dp == 2
			want, norms := v.train(t, m, 2, refBackend)
			got, gn := v.train(t, m, 2, opaques(t))
			require.Equal(t, want, got)
			require.Equal(t, norms, gn)
		})
	}
}

// TestDeviceKinds: ranks of one run on devices and on the host exchange what they need; components, rows
// that data decides, activations in host memory, and chunks do so too.
func TestDeviceKinds(t *testing.T) {
	v := variant{pp: 2, dp: 1, tp: 2, schedule: "1f1b"}
	m := tiny(false)
	want, _ := v.train(t, m, 3, refBackend)
	device := opaques(t)
	got, _ := v.train(t, m, 3, func(rank int) kernels.Backend {
		if rank%2 == 0 {
			return ref.New()
		}
		return device(rank)
	})
	require.Equal(t, want, got, "every other rank on a device")

	three := func(b func(int) kernels.Backend) []float64 {
		return toyTrain(t, &layout.Design{Model: threeComponents(), Mesh: topology.Grid(2, 1, 1),
			Schedule: "1f1b", Micro: 8, Dims: map[string]int{"sound": 3, "state": 1}, Offload: 64,
			Parts: []*layout.PartPlan{{TP: 1, Over: layout.OverOwn, Ranks: 1, Fill: true},
				{From: 2, TP: 1, Over: layout.OverAll}}}, toyBatches(1), 3, b)
	}
	require.Equal(t, three(refBackend), three(opaques(t)))

	ragged := func(b func(int) kernels.Backend) []float64 {
		mesh, err := topology.Grid(1, 2, 1).Fold(topology.Dim{Name: topology.EDP, Size: 1},
			topology.Dim{Name: topology.EP, Size: 2})
		require.NoError(t, err)
		return toyTrain(t, &layout.Design{Model: raggedModel(), Mesh: mesh, Schedule: "1f1b", Micro: 4,
			Recompute: grad.RecomputeFull}, raggedBatches(2), 3, b)
	}
	require.Equal(t, ragged(refBackend), ragged(opaques(t)))
}
