package cpu

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Rows that are multiplied where they lie give the bits of packed ones, also the last ones, which fill no tile,
// in several parts of the sum, behind a bias and before an epilogue.
func TestRowsInPlace(t *testing.T) {
	const m, n = leftLeast + 5, 70
	for _, k := range levels() {
		for _, sum := range []int{40, 700} {
			b := newBackend(k, 2)
			for _, followed := range []bool{false, true} {
				var got [2][]float32
				x, w, bias := filled(tensor.F32, m, sum), filled(tensor.F32, n, sum), filled(tensor.F32, n)
				for i, ld := range []int{sum, roundUp(sum, 256)} {
					wide := make([]float32, m*ld)
					for r := range m {
						copy(wide[r*ld:], x.F32()[r*sum:][:sum])
					}
					y := tensor.Make(tensor.F32, m, n)
					left := matrix{v: view{d: tensor.F32, f: wide}, ld: ld}
					require.Equal(t, i == 0, liesWell(left, m))
					c := &kernels.Call{Op: kernels.Linear, Out: []*tensor.Tensor{y}}
					if followed {
						c.Then = []*kernels.Call{{Op: kernels.Sum, In: []*tensor.Tensor{y, y},
							Out: []*tensor.Tensor{y}}}
					}
					r := result{v: viewOf(y), ld: n, bias: bias.F32()}
					b.productOf(c, r, left, rowMajor(w), m, n, sum)
					b.shared.reset()
					got[i] = y.F32()
				}
				require.Equal(t, got[1], got[0], "%s %d %v", k.name, sum, followed)
			}
			require.NoError(t, b.Close())
		}
	}
}

// Tasks of whole groups of rows are at most as large as asked for, and give threads about as many rows.
func TestTaskRows(t *testing.T) {
	for _, c := range []struct{ m, unit, most, threads, want int }{
		{512, 12, 72, 2, 36},   // eight tasks of which the last has 8 rows would be 288 and 224
		{512, 12, 132, 1, 132}, // one thread has all
		{576, 12, 72, 2, 72},   // eight that are alike
		{30, 12, 48, 2, 48},    // one task
	} {
		require.Equal(t, c.want, taskRows(c.m, c.unit, c.most, c.threads), fmt.Sprint(c))
	}
}
