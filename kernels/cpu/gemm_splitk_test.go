package cpu

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// columnsOf are n columns of a tensor, from one on, as a tensor of their own.
func columnsOf(t *tensor.Tensor, from, n int) *tensor.Tensor {
	shape := append([]int(nil), t.Shape...)
	shape[len(shape)-1] = n
	out := tensor.Make(t.DType, shape...)
	all, size := lastDim(t)*t.DType.Size(), n*t.DType.Size()
	for i := range t.Rows() {
		copy(out.Bytes()[i*size:(i+1)*size], t.Bytes()[i*all+from*t.DType.Size():])
	}
	return out
}

// TestInParts: a product whose sums are taken in parts has the bits of so many products of parts of the
// operands and of their sum, as ranks take them that have a part each: at every level, in every dtype, of
// few rows and of many, with weights that are kept and that are not, and of groups of rows.
func TestInParts(t *testing.T) {
	for _, k := range levels() {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
			t.Run(fmt.Sprintf("%s %v", k.name, d), func(t *testing.T) {
				be := newBackend(k, 2)
				defer be.Close()
				for _, s := range [][3]int{{5, 6, 2}, {33, 66, 3}, {64, 1024, 2}, {70, 2200, 2},
					{130, 1536, 3}} {
					for _, rows := range []int{1, 2, 13, 70} {
						partsOf(t, be, d, rows, s[0], s[1], s[2])
						groupsInParts(t, be, d, rows, s[0], s[1], s[2])
					}
				}
				require.Empty(t, be.kept.may)
				require.Empty(t, be.kept.columns)
			})
		}
	}
}

// partsOf holds a product of n columns over k to p products over a part of k each.
func partsOf(t *testing.T, be *Backend, d tensor.DType, rows, n, k, p int) {
	x, w, bias := filled(d, rows, k), filled(d, n, k), filled(d, n)
	var parts ts
	for i := range p {
		in, y := ts{columnsOf(x, i*k/p, k/p), columnsOf(w, i*k/p, k/p)}, tensor.Make(d, rows, n)
		if i == 0 {
			in = append(in, bias)
		}
		be.Run(&kernels.Call{Op: kernels.Linear, In: in, Out: ts{y}})
		one, at := tensor.Make(d, rows, n), kernels.Attr{I: [4]int{2: i + 1, 3: p}}
		be.Run(&kernels.Call{Op: kernels.Linear, In: append(ts{x, w}, in[2:]...), Out: ts{one}, Attr: at})
		require.True(t, bytes.Equal(y.Bytes(), one.Bytes()), "part %d of %d rows of %d over %d", i, rows, n,
			k)
		parts = append(parts, y)
	}
	want := tensor.Make(d, rows, n)
	be.Run(&kernels.Call{Op: kernels.Sum, In: parts, Out: ts{want}})
	for _, keep := range []bool{false, true} {
		if keep {
			be.Keep(w)
		}
		for range 2 { // of panels that are made, and that are there
			y := tensor.Make(d, rows, n)
			be.Run(&kernels.Call{Op: kernels.Linear, In: ts{x, w, bias}, Out: ts{y},
				Attr: kernels.Attr{I: [4]int{3: p}}})
			require.True(t, bytes.Equal(want.Bytes(), y.Bytes()), "%d rows of %d over %d, kept %v", rows, n,
				k, keep)
		}
	}
	be.Forget(w)
}

// groupsInParts does the same with a product of groups of rows.
func groupsInParts(t *testing.T, be *Backend, d tensor.DType, rows, n, k, p int) {
	x, w := filled(d, rows, k), filled(d, 3, n, k)
	off := tensor.Of(tensor.I32, []int32{0, int32(rows / 3), int32(rows / 3), int32(rows)}, 4)
	var parts ts
	for i := range p {
		y := tensor.Make(d, rows, n)
		be.Run(&kernels.Call{Op: kernels.GroupedLinear, Out: ts{y},
			In: ts{columnsOf(x, i*k/p, k/p), columnsOf(w, i*k/p, k/p), off}})
		parts = append(parts, y)
	}
	want, got := tensor.Make(d, rows, n), tensor.Make(d, rows, n)
	be.Run(&kernels.Call{Op: kernels.Sum, In: parts, Out: ts{want}})
	be.Run(&kernels.Call{Op: kernels.GroupedLinear, In: ts{x, w, off}, Out: ts{got},
		Attr: kernels.Attr{I: [4]int{3: p}}})
	require.True(t, bytes.Equal(want.Bytes(), got.Bytes()), "%d rows in groups of %d over %d", rows, n, k)
}
