package family

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
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

// TestPlaceOfRegions: what rounds a tensor's numbers by chance is counted from their places in the whole tensor, however it
// is cut: by rows, columns, experts, and both.
func TestPlaceOfRegions(t *testing.T) {
	p := &grad.Param{Shape: []int{4, 6, 10}}
	noise := func(local []int, g Region) (out []uint32) {
		p.Local = local
		h := make([]float64, kernels.HyperLen)
		g.Place(p, h)
		for i := range (g.To - g.From) * local[1] * local[2] {
			out = append(out, kernels.HyperNoise(h, i))
		}
		return out
	}
	whole := noise(p.Shape, Whole(&grad.Param{Shape: p.Shape}))
	for _, x := range []struct {
		local []int
		g     Region
	}{{[]int{4, 6, 10}, Region{From: 1, To: 3}}, {[]int{2, 6, 10}, Region{Cuts: []Cut{{0, 1, 2}}, From: 1, To: 2}},
		{[]int{4, 6, 5}, Region{Cuts: []Cut{{2, 1, 2}}, From: 2, To: 4}},
		{[]int{2, 3, 10}, Region{Cuts: []Cut{{0, 1, 2}, {1, 1, 2}}, To: 2}}} {
		iv, got := x.g.Intervals(p), noise(x.local, x.g)
		for e := iv[0][0]; e < iv[0][1]; e++ {
			for r := iv[1][0]; r < iv[1][1]; r++ {
				for c := iv[2][0]; c < iv[2][1]; c++ {
					require.Equal(t, whole[(e*6+r)*10+c], got[0], "%v at %d, %d, %d", x.g, e, r, c)
					got = got[1:]
				}
			}
		}
		require.Empty(t, got)
	}
}
