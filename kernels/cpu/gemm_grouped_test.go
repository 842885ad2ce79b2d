package cpu

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestGroupedRows: a row's result has the same bits whatever group it is in and however many rows that has,
// so that sharing experts out over ranks changes none.
func TestGroupedRows(t *testing.T) {
	for _, k := range levels() {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
			for _, op := range []kernels.Op{kernels.GroupedLinear, kernels.GroupedLinearDX} {
				t.Run(fmt.Sprintf("%s %v %s", k.name, d, op), func(t *testing.T) {
					be := newBackend(k, 2)
					defer be.Close()
					for _, s := range [][2]int{{37, 29}, {130, 600}} {
						groupedRows(t, be, d, op, s[0], s[1])
					}
				})
			}
		}
	}
}

// groupedRows multiplies the same 100 rows with the same matrix, n by k, in groups of different sizes.
func groupedRows(t *testing.T, be *Backend, d tensor.DType, op kernels.Op, n, k int) {
	const rows = 100
	in, out := k, n
	if op == kernels.GroupedLinearDX {
		in, out = n, k
	}
	x, w := filled(d, rows, in), filled(d, n, k)
	var want []byte
	for _, size := range []int{rows, 1, 2, 8, 9, 48, 49, 65} {
		off := []int32{0}
		for at := 0; at < rows; {
			at = min(rows, at+size)
			off = append(off, int32(at))
		}
		g := len(off) - 1
		ws := tensor.Make(d, g, n, k)
		for i := range g {
			copy(ws.RowSlice(i, i+1).Bytes(), w.Bytes())
		}
		y := tensor.Make(d, rows, out)
		be.Run(&kernels.Call{Op: op, In: ts{x, ws, tensor.Of(tensor.I32, off, len(off))}, Out: ts{y}})
		if want == nil {
			want = bytes.Clone(y.Bytes())
		}
		require.True(t, bytes.Equal(want, y.Bytes()), "%d by %d in groups of %d", n, k, size)
	}
}

// TestWhole: a product that one worker computes by itself has the bits of one that all compute together.
func TestWhole(t *testing.T) {
	for _, k := range levels() {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			t.Run(fmt.Sprintf("%s %v", k.name, d), func(t *testing.T) {
				be := newBackend(k, 2)
				defer be.Close()
				for _, s := range [][3]int{{65, 37, 29}, {96, 64, 1100}, {430, 530, 33}} {
					m, n, sum := s[0], s[1], s[2]
					a, b := filled(d, m*sum), filled(d, n*sum)
					for _, x := range []matrix{{v: viewOf(a), ld: sum}, {v: viewOf(a), ld: m, trans: true}} {
						for _, y := range []matrix{{v: viewOf(b), ld: sum}, {v: viewOf(b), ld: n, trans: true}} {
							wholeProduct(t, be, tensor.F32, product{result{acc: y.trans}, x, y, m, n, sum})
							wholeProduct(t, be, tensor.BF16, product{x: x, y: y, m: m, n: n, k: sum})
						}
					}
				}
			})
		}
	}
}

// wholeProduct computes a product to a dtype in both ways.
func wholeProduct(t *testing.T, be *Backend, to tensor.DType, p product) {
	together, alone := filled(to, p.m, p.n), filled(to, p.m, p.n)
	p.r = result{v: viewOf(together), ld: p.n, acc: p.r.acc}
	be.blocked(p.r, p.x, p.y, p.m, p.n, p.k)
	p.r.v = viewOf(alone)
	be.team.workers[0].whole(p)
	require.True(t, bytes.Equal(together.Bytes(), alone.Bytes()), "%d by %d over %d, turned %v %v", p.m, p.n, p.k,
		p.x.trans, p.y.trans)
}
