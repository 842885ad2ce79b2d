package fidelity

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/cost"
)

// TestPredictIsSimulated: the terms that are printed for a row add up to what its simulated program takes.
func TestPredictIsSimulated(t *testing.T) {
	k := cost.Constants{1 / 200e12, 100, 1 / 1.2e12, 1 / 2e12, 1e-3, 1 / 150e9, 1 / 100e9, 1 / 20e9,
		1 / 100e9, 1 / 15e9, 1e-11, 2e-5}
	slots := ProgramSlots()
	for _, r := range []cost.Measured{
		{GPUs: 64, Batch: 64, Micro: 1, Hidden: 4096, Heads: 32, Layers: 32, Seq: 2048, TP: 8, DP: 2, PP: 4},
		{GPUs: 1, Batch: 8, Micro: 2, Hidden: 1024, Heads: 16, Layers: 12, Seq: 1024, TP: 1, DP: 1, PP: 1},
		{GPUs: 32, Batch: 256, Micro: 4, Hidden: 8192, Heads: 64, Layers: 64, Seq: 2048, TP: 2, DP: 1,
			PP: 16},
	} {
		n, err := slots(r.PP, r.Microbatches())
		require.NoError(t, err)
		require.InEpsilon(t, float64(r.Microbatches()+r.PP-1), n, 1e-6)
		p := k.Pieces(&r)
		got, err := simulateRow(&r, &p)
		require.NoError(t, err)
		require.InEpsilon(t, k.Predict(&r, n).Sum(), got, 1e-6)
	}
}
