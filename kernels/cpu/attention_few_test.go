package cpu

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestFewQueries: the last queries of a sequence have the bits by themselves that they have among all,
// one and several, with heads that share keys and without, with windows, caps and more keys than a block:
// at every level, in every dtype.
func TestFewQueries(t *testing.T) {
	for _, k := range levels() {
		be := newBackend(k, 2)
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
			for _, s := range []struct{ rows, heads, groups, width, window int }{{5, 4, 2, 12, 0},
				{70, 9, 3, 64, 0}, {70, 4, 4, 16, 9}, {600, 3, 1, 64, 0}, {1100, 2, 2, 33, 530}} {
				for _, most := range []float64{0, 5} {
					name := fmt.Sprintf("%s %v %+v %g", k.name, d, s, most)
					q, keys := filled(d, s.rows, s.heads, s.width), filled(d, s.rows, s.groups, s.width)
					values := filled(d, s.rows, s.groups, s.width)
					at := kernels.Attr{I: [4]int{1, s.window}, F: [2]float64{0.3, most}}
					of := func(q *tensor.Tensor) []byte {
						n := q.Shape[0]
						o, lse := tensor.Make(d, n, s.heads, s.width), tensor.Make(tensor.F32, n, s.heads)
						cu := func(n int) *tensor.Tensor {
							return tensor.Of(tensor.I32, []int32{0, int32(n)}, 2)
						}
						be.Run(&kernels.Call{Op: kernels.Attention, Out: ts{o, lse}, Attr: at,
							In: ts{q, keys, values, cu(n), cu(s.rows)}})
						return append(bytes.Clone(o.Bytes()), lse.Bytes()...)
					}
					all, each := of(q), s.heads*s.width*d.Size()
					for _, n := range []int{1, 2, 4} {
						got, from := of(q.RowSlice(s.rows-n, s.rows)), s.rows-n
						require.True(t, bytes.Equal(all[from*each:s.rows*each], got[:n*each]), "%s, %d", name,
							n)
						lse := all[s.rows*each+from*s.heads*4:]
						require.True(t, bytes.Equal(lse, got[n*each:]), "%s, %d: sums", name, n)
					}
				}
			}
		}
		require.NoError(t, be.Close())
	}
}
