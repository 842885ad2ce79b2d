package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func wide(t *tensor.Tensor) []float32 {
	y := make([]float32, t.Len())
	portable.read(y, viewOf(t), 0)
	return y
}

// Products larger than the blocks packed at a time, and written past the caches: sampled elements against
// sums in float64.
func TestLargeProducts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range tested() {
		if k.name == "go" {
			continue // the loops are those of the other levels
		}
		b := newBackend(k, 2)
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16} {
			for _, s := range [][3]int{{4200, 70, 600}, {100, 2300, 520}, {1100, 2080, 96}} {
				m, n, kk := s[0], s[1], s[2]
				x, w, y := filled(d, m, kk), filled(d, n, kk), tensor.Make(d, m, n)
				b.Run(&kernels.Call{Op: kernels.Linear, In: []*tensor.Tensor{x, w}, Out: []*tensor.Tensor{y}})
				xs, ws, ys := wide(x), wide(w), wide(y)
				for range 3000 {
					i, j := r.IntN(m), r.IntN(n)
					want, size := 0.0, 0.0
					for p := range kk {
						v := float64(xs[i*kk+p]) * float64(ws[j*kk+p])
						want += v
						size += math.Abs(v)
					}
					bound := 1e-6 * size
					if d == tensor.BF16 {
						bound += math.Abs(want) / 256
					}
					require.InDelta(t, want, ys[i*n+j], bound, "%s %v %v [%d,%d]", k.name, d, s, i, j)
				}
			}
		}
		b.Close()
	}
}

// Attention over several blocks of keys and ranges of queries has the same bits for any number of threads,
// and the value of a query does not depend on what is packed with it.
func TestLongSequences(t *testing.T) {
	const n, h, d = 1300, 2, 32
	q, k, v := filled(tensor.F32, n, h, d), filled(tensor.F32, n, 1, d), filled(tensor.F32, n, 1, d)
	for _, level := range tested() {
		var first []float32
		for _, threads := range []int{1, 3} {
			b := newBackend(level, threads)
			o, lse := tensor.Make(tensor.F32, n, h, d), tensor.Make(tensor.F32, n, h)
			cu := tensor.Of(tensor.I32, []int32{0, n}, 2)
			b.Run(&kernels.Call{Op: kernels.Attention, In: []*tensor.Tensor{q, k, v, cu, cu},
				Out:  []*tensor.Tensor{o, lse},
				Attr: kernels.Attr{I: [4]int{1}, F: [2]float64{0.2}}})
			b.Close()
			if first == nil {
				first = o.F32()
				requireQuery(t, level.name, first, q.F32(), k.F32(), v.F32(), n-1, h, d)
				requireQuery(t, level.name, first, q.F32(), k.F32(), v.F32(), 700, h, d)
			}
			require.Equal(t, first, o.F32(), "%s: %d threads", level.name, threads)
		}
	}
}

// requireQuery compares head 1 of one causal query with sums in float64.
func requireQuery(t *testing.T, name string, o, q, k, v []float32, i, h, d int) {
	want, sum := make([]float64, d), 0.0
	for j := range i + 1 {
		s := 0.0
		for p := range d {
			s += float64(q[(i*h+1)*d+p]) * float64(k[j*d+p])
		}
		e := math.Exp(0.2 * s)
		sum += e
		for p := range d {
			want[p] += e * float64(v[j*d+p])
		}
	}
	for p := range d {
		require.InDelta(t, want[p]/sum, o[(i*h+1)*d+p], 1e-6, "%s: query %d", name, i)
	}
}

// The backward pass over several blocks of keys: the same bits whether or not it is cut for more threads,
// and levels agree.
func TestLongSequencesBackward(t *testing.T) {
	const n, h, d = 1300, 2, 32
	cu := tensor.Of(tensor.I32, []int32{0, n}, 2)
	attr := kernels.Attr{I: [4]int{1, 900}, F: [2]float64{0.2}}
	for _, a := range []tensor.DType{tensor.F32, tensor.BF16} {
		q, k, v, do := filled(a, n, h, d), filled(a, n, 1, d), filled(a, n, 1, d), filled(a, n, h, d)
		var want []*tensor.Tensor
		for _, level := range tested() {
			var first []*tensor.Tensor
			for _, threads := range []int{1, 3} {
				b := newBackend(level, threads)
				o, lse := tensor.Make(a, n, h, d), tensor.Make(tensor.F32, n, h)
				b.Run(&kernels.Call{Op: kernels.Attention, In: []*tensor.Tensor{q, k, v, cu, cu},
					Out: []*tensor.Tensor{o, lse}, Attr: attr})
				got := []*tensor.Tensor{tensor.Make(a, n, h, d), tensor.Make(a, n, 1, d),
					tensor.Make(a, n, 1, d)}
				b.Run(&kernels.Call{Op: kernels.AttentionBwd,
					In: []*tensor.Tensor{do, q, k, v, o, lse, cu, cu}, Out: got, Attr: attr})
				b.Close()
				if first == nil {
					first = got
				}
				if want == nil {
					want = got
				}
				for i := range got {
					require.Equal(t, first[i].Bytes(), got[i].Bytes(), "%s %v: output %d with %d threads",
						level.name, a, i, threads)
					requireNear(t, wide(want[i]), wide(got[i]),
						map[tensor.DType]float64{tensor.F32: 2e-5, tensor.BF16: 0.02}[a], level.name)
				}
			}
		}
	}
}

// requireNear compares by the norm of the difference.
func requireNear(t *testing.T, want, got []float32, bound float64, name string) {
	d, s := 0.0, 0.0
	for i := range want {
		d += math.Pow(float64(want[i]-got[i]), 2)
		s += math.Pow(float64(want[i]), 2)
	}
	require.LessOrEqual(t, math.Sqrt(d/s), bound, name)
}
