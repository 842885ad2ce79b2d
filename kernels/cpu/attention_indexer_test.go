package cpu

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestNth holds selection to sorting, with many equal numbers and with none.
func TestNth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		v := make([]float32, 1+r.IntN(60))
		kinds := 1 + r.IntN(80)
		for i := range v {
			v[i] = float32(r.IntN(kinds))
		}
		sorted := slices.Clone(v)
		slices.Sort(sorted)
		slices.Reverse(sorted)
		n := 1 + r.IntN(len(v))
		x, above := nth(slices.Clone(v), n)
		require.Equal(t, sorted[n-1], x)
		require.Equal(t, slices.Index(sorted, x), above)
	}
}

// TestBest: the first places win among equal scores, and what is not a number counts as greatest.
func TestBest(t *testing.T) {
	b := New(1)
	defer b.Close()
	w, idx := b.team.workers[0], make([]int32, 3)
	zero := float32(0)
	w.best(idx, []float32{1, 2, 1, zero / zero, 1}, 10)
	require.Equal(t, []int32{10, 11, 13}, idx)
	w.best(idx, []float32{5, 5, 5, 5}, 0)
	require.Equal(t, []int32{0, 1, 2}, idx)
	w.best(idx, []float32{5}, 7)
	require.Equal(t, []int32{7, -1, -1}, idx)
}

// TestSparseHeads: a rank with some of the heads that share a key has the bits of a call with all of them, whichever way
// their number would choose.
func TestSparseHeads(t *testing.T) {
	const rows, keys, heads, width, listed = 5, 12, 16, 24, 6
	r := rand.New(rand.NewPCG(3, 4))
	drawn := func(shape ...int) *tensor.Tensor {
		x := tensor.Make(tensor.F32, shape...)
		for i := range x.F32() {
			x.F32()[i] = float32(r.NormFloat64())
		}
		return x
	}
	q, k, idx := drawn(rows, heads, width), drawn(keys, 1, width), tensor.Make(tensor.I32, rows, listed)
	for i := range idx.I32() {
		idx.I32()[i] = int32(r.IntN(keys))
	}
	b := New(1)
	defer b.Close()
	attend := func(from, to int) []float32 {
		some, o := tensor.Make(tensor.F32, rows, to-from, width), tensor.Make(tensor.F32, rows, to-from, width)
		for i := range rows {
			copy(some.F32()[i*(to-from)*width:], q.F32()[(i*heads+from)*width:(i*heads+to)*width])
		}
		b.Run(&kernels.Call{Op: kernels.AttentionSparse, In: []*tensor.Tensor{some, k, k, idx},
			Out:  []*tensor.Tensor{o, tensor.Make(tensor.F32, rows, to-from)},
			Attr: kernels.Attr{F: [2]float64{0.2}, I: [4]int{heads}}})
		return o.F32()
	}
	all := attend(0, heads)
	for _, n := range []int{1, 2, 8} {
		for from := 0; from < heads; from += n {
			got := attend(from, from+n)
			for i := range rows {
				require.Equal(t, all[(i*heads+from)*width:(i*heads+from+n)*width], got[i*n*width:(i+1)*n*width])
			}
		}
	}
}
