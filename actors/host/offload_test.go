package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/topology"
)

// TestOffload: activations that lie in host memory between forward and backward change no bit, leave less on
// the device, and their copies are what the simulator is told.
func TestOffload(t *testing.T) {
	m := tiny(false)
	v := variant{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}
	want, _ := v.train(t, m, 5, refBackend)
	var losses []float64
	l, o := v.run(t, m, 5, refBackend, &losses)
	plain := l.Memory(0).Activations
	j := *l.Job
	j.Offload, j.Mesh = 1, topology.Grid(2, 1, 1)
	l, err := layout.Plan(&j)
	require.NoError(t, err)
	require.NoError(t, Run(l, o))
	require.Equal(t, want, losses)
	require.Less(t, l.Memory(0).Activations, plain)
	var away, back int64
	tr := l.Main(0)
	for _, ph := range []grad.Phase{grad.F, grad.B} {
		for _, s := range tr.Segments(ph) {
			a, b := tr.Copies(&s)
			away, back = away+a, back+b
		}
	}
	require.Positive(t, away)
	require.Equal(t, away, back)
}
