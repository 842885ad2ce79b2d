//go:build cuda

package cuda

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestManyAtOnce: updates of many tensors, and their sums of squares, are a launch of each forty or eighty of them,
// have the bits that each has by itself, and are launched before anything reads or writes what they change.
func TestManyAtOnce(t *testing.T) {
	d, e := emulated(t, 0, strict)
	pool := tensor.NewPool("device", 0).In(d)
	hyper, clip := tensor.Make(tensor.F64, kernels.HyperLen), tensor.Make(tensor.F64, kernels.ClipLen)
	copy(hyper.F64(), []float64{0.01, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05})
	clip.F64()[kernels.ClipFactor] = 0.5
	const n = 90
	want, got := make([][]*tensor.Tensor, n), make([][]*tensor.Tensor, n)
	sums := place(t, d, pool, tensor.Make(tensor.F64, n))
	squares := tensor.Make(tensor.F64, n)
	call := func(l []*tensor.Tensor, h, c *tensor.Tensor, i int) *kernels.Call {
		return &kernels.Call{Op: kernels.AdamW, In: []*tensor.Tensor{l[0], h, c}, Out: l[1:],
			Attr: kernels.Attr{I: [4]int{i % 2}}}
	}
	for i := range n {
		shape := []int{1 + i*731%9000}
		for j := range 5 {
			x := numbers(shape...)
			if j == 3 { // second moments are not negative
				clear(x.F32())
			}
			if j == 4 {
				x = tensor.Make(tensor.BF16, shape...)
			}
			want[i], got[i] = append(want[i], x), append(got[i], place(t, d, pool, x))
		}
		ref.New().Run(&kernels.Call{Op: kernels.SumSquares, In: want[i][:1],
			Out: []*tensor.Tensor{squares.RowSlice(i, i+1)}})
	}
	d.Sync()
	before := e.Launches()
	for i := range n {
		d.Run(&kernels.Call{Op: kernels.SumSquares, In: got[i][:1], Out: []*tensor.Tensor{sums.RowSlice(i,
			i+1)}})
	}
	require.InEpsilonSlice(t, squares.F64(), kernels.Host(d, sums).F64(), 1e-12)
	require.Equal(t, 4, e.Launches()-before, "two launches for eighty sums")
	before = e.Launches()
	for i := range n {
		d.Run(call(got[i], hyper, clip, i))
	}
	hyper.F64()[kernels.HyperLR] = 7 // what was taken is taken
	d.Sync()
	require.Equal(t, 3, e.Launches()-before, "a launch for forty updates")
	hyper.F64()[kernels.HyperLR] = 0.01
	single := [2]*tensor.Tensor{place(t, d, pool, hyper), place(t, d, pool, clip)}
	for i := range n {
		alone := make([]*tensor.Tensor, 5)
		for j, x := range want[i] {
			alone[j] = place(t, d, pool, x)
		}
		d.Run(call(alone, single[0], single[1], i)) // hyper-parameters on the device: a launch of its own
		for j := range alone {
			require.Equal(t, kernels.Host(d, alone[j]).Bytes(), kernels.Host(d, got[i][j]).Bytes(),
				fmt.Sprintf("tensor %d, operand %d", i, j))
		}
	}
	before = e.Launches()
	clip.F64()[kernels.ClipOverflow] = 1
	d.Run(call(got[0], hyper, clip, 0))
	d.Sync()
	require.Equal(t, before, e.Launches(), "a step that is skipped")
}
