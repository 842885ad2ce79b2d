package cpu

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestOneRow: a row of a product has the same bits alone, as when a text is drawn token by token, and among others,
// as in training: at every level, in every dtype, with and without a bias, for sums and columns that fill no vectors.
func TestOneRow(t *testing.T) {
	for _, k := range levels() {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
			t.Run(fmt.Sprintf("%s %v", k.name, d), func(t *testing.T) {
				be := newBackend(k, 2)
				defer be.Close()
				for _, s := range [][2]int{{1, 1}, {5, 3}, {16, 16}, {31, 33}, {64, 512}, {70, 1100},
					{130, 576},
					{97, 513}} {
					for _, bias := range []bool{false, true} {
						oneRowOf(t, be, d, s[0], s[1], bias)
					}
				}
			})
		}
	}
}

// oneRowOf holds rows of a product of n columns over k to the whole.
func oneRowOf(t *testing.T, be *Backend, d tensor.DType, n, k int, bias bool) {
	const rows = 13
	x, w, y := filled(d, rows, k), filled(d, n, k), tensor.Make(d, rows, n)
	in := ts{x, w, nil}
	if bias {
		in[2] = filled(d, n)
	}
	be.Run(&kernels.Call{Op: kernels.Linear, In: in, Out: ts{y}})
	for i := range rows {
		one := tensor.Make(d, 1, n)
		be.Run(&kernels.Call{Op: kernels.Linear, In: ts{x.RowSlice(i, i+1), w, in[2]}, Out: ts{one}})
		require.True(t, bytes.Equal(y.RowSlice(i, i+1).Bytes(), one.Bytes()),
			"row %d of %d columns over %d", i, n, k)
	}
}

// TestFewRows: rows of a product have the same bits among few, whose tiles are as high as they are, and among many:
// at every level, with packed columns that are kept and that are not, over sums of one part and of several.
func TestFewRows(t *testing.T) {
	const rows = fewMost + 37
	for _, k := range levels() {
		be := newBackend(k, 2)
		for _, s := range [][2]int{{1, 1}, {33, 17}, {64, 513}, {131, 1100}} {
			n, depth := s[0], s[1]
			x, w, y := filled(tensor.F32, rows, depth), filled(tensor.F32, n, depth), tensor.Make(tensor.F32,
				rows, n)
			in := ts{x, w, filled(tensor.F32, n)}
			be.Run(&kernels.Call{Op: kernels.Linear, In: in, Out: ts{y}})
			for i, m := range []int{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 24, 25, 31, 32, 48, 95, 96} {
				if i == 7 {
					be.Keep(w)
				}
				part := tensor.Make(tensor.F32, m, n)
				be.Run(&kernels.Call{Op: kernels.Linear, In: ts{x.RowSlice(i, i+m), w, in[2]},
					Out: ts{part}})
				require.True(t, bytes.Equal(y.RowSlice(i, i+m).Bytes(), part.Bytes()),
					"%s: %d rows of %d columns over %d",
					k.name, m, n, depth)
			}
		}
		be.Close()
	}
}

// BenchmarkOneRow gives the GB/s at which one row reads a matrix that lies in memory and not in caches.
func BenchmarkOneRow(b *testing.B) {
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, s := range [][2]int{{1536, 576}, {49152, 576}, {5632, 2048}} {
			b.Run(fmt.Sprintf("%v/%dx%d", d, s[0], s[1]), func(b *testing.B) {
				be := New(2)
				defer be.Close()
				n, k := s[0], s[1]
				copies := max(1, (96<<20)/(n*k*d.Size()))
				x, y := filled(d, 1, k), tensor.Make(tensor.F32, 1, n)
				var w []*tensor.Tensor
				for range copies {
					w = append(w, filled(d, n, k))
				}
				i := 0
				for b.Loop() {
					be.Run(&kernels.Call{Op: kernels.Linear, In: ts{x, w[i%copies], nil}, Out: ts{y}})
					i++
				}
				b.ReportMetric(float64(n*k*d.Size())/float64(b.Elapsed().Nanoseconds())*float64(b.N), "GB/s")
			})
		}
	}
}

// BenchmarkFewRows gives the GFLOP/s of products of few rows, as of texts that are drawn side by side, whose
// right operand is kept in panels and lies in memory.
func BenchmarkFewRows(b *testing.B) {
	for _, k := range levels() {
		if k.name != "avx512" && k.name != "avx2" {
			continue
		}
		for _, m := range []int{2, 4, 8, 16, 32, 48, 384} {
			for _, s := range [][2]int{{1536, 576}, {576, 1536}} {
				b.Run(fmt.Sprintf("%s/%dx%dx%d", k.name, m, s[0], s[1]), func(b *testing.B) {
					be := newBackend(k, 1)
					defer be.Close()
					n, k := s[0], s[1]
					copies := (128 << 20) / (n * k * 4)
					x, y := filled(tensor.F32, m, k), tensor.Make(tensor.F32, m, n)
					var w []*tensor.Tensor
					for range copies {
						t := filled(tensor.F32, n, k)
						be.Keep(t)
						w = append(w, t)
						be.Run(&kernels.Call{Op: kernels.Linear, In: ts{x, t, nil}, Out: ts{y}})
					}
					i := 0
					for b.Loop() {
						be.Run(&kernels.Call{Op: kernels.Linear, In: ts{x, w[i%copies], nil}, Out: ts{y}})
						i++
					}
					per := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
					b.ReportMetric(float64(n*k*4)/per, "GB/s")
					b.ReportMetric(2*float64(n*k*m)/per, "GFLOP/s")
				})
			}
		}
	}
}
