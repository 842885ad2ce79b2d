package family

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/grad"
)

// TestInitShares: first values are the same whatever the number of goroutines that compute them, and those
// of a part are the whole's.
func TestInitShares(t *testing.T) {
	m := Decoder("llama", Spec{Layers: 1, Hidden: 64, InitStd: 0.02})
	p := &grad.Param{Name: "model.layers.0.mlp.up_proj.weight", Shape: []int{1201, 64}}
	values := func(g Region, n, procs int) []float32 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		dst := make([]float32, n)
		m.Init(5, p, g, dst)
		return dst
	}
	one := values(Whole(p), 1201*64, 1)
	require.Equal(t, one, values(Whole(p), 1201*64, 5))
	for i, x := range one {
		require.NotZero(t, x, i)
	}
	// columns 32 to 64 of rows 300 to 1201: the runs of neighbours are half rows
	part := Region{Cuts: []Cut{{Axis: 1, At: 1, Of: 2}}, From: 300, To: 1201}
	got := values(part, 901*32, 3)
	for i := range 901 {
		require.Equal(t, one[(300+i)*64+32:(301+i)*64], got[i*32:(i+1)*32], "row %d", 300+i)
	}
}
