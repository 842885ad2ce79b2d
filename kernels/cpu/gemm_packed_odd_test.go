package cpu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestUnpackFromAnywhere: a row in few bits has the numbers of Packing.Decode from each place on, and of each
// length: parts of a sum begin in the middle of a byte too.
func TestUnpackFromAnywhere(t *testing.T) {
	t.Parallel()
	const k = 200
	for _, name := range []string{"nf4/64", "int4/64"} {
		p, err := kernels.PackingOf(name)
		require.NoError(t, err)
		_, words := p.Words(k)
		row := tensor.Make(tensor.I32, 1, words).Bytes()
		p.Pack(row, filled(tensor.F32, 1, k).F32())
		for _, level := range levels() {
			be := newBackend(level, 1)
			for from := range 70 {
				for _, n := range []int{0, 1, 2, 17, 64, k - from} {
					want, got := make([]float32, n), make([]float32, n)
					p.Decode(want, row, k, from)
					be.team.workers[0].unpackRow(p, got, row, k, from)
					require.Equal(t, want, got, "%s from %d, %d", name, from, n)
				}
			}
			be.Close()
		}
	}
}
