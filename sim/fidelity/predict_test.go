package fidelity

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/cost"
)

// TestPredictIsSimulated: the terms that are printed for a row add up to what its simulated program takes.
func TestPredictIsSimulated(t *testing.T) {
	var k cost.Constants
	for i, c := range cost.ConstantTable {
		k[i] = c.Start
	}
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
