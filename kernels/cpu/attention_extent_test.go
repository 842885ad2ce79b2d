package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// Every pair of a tile and a step of columns that it has comes up once, and no other.
func TestExtentsCoverWhatIsSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const side, columns = 12, 540
	for _, step := range []int{12, 32} {
		for range 300 {
			var l extents
			for range 1 + r.IntN(9) {
				lo := r.IntN(columns / side)
				l = append(l, extent{lo * side, (lo + r.IntN(columns/side-lo)) * side}) // now and then empty
			}
			seen := map[[2]int]int{}
			l.byColumns(step, func(c0, c1, i0, i1 int) {
				for c := c0; c < c1; c += step {
					for i := i0; i < i1; i++ {
						seen[[2]int{c, i}]++
					}
				}
			})
			rows := map[int]extent{}
			l.alike(func(i0, i1 int, e extent) {
				for i := i0; i < i1; i++ {
					require.NotContains(t, rows, i)
					rows[i] = e
				}
			})
			for i, e := range l {
				if e.lo < e.hi {
					require.Equal(t, e, rows[i])
				}
				for c := 0; c < columns; c += step {
					want := 0
					if e.lo < c+step && e.hi > c {
						want = 1
					}
					require.Equal(t, want, seen[[2]int{c, i}], "%v: tile %d, column %d of step %d", l, i,
						c, step)
				}
			}
		}
	}
}

// Rows of heads are packed where a row of a tile's columns is a single line of cache and the product is high,
// and read where they lie elsewhere, with the same numbers.
func TestRowColumns(t *testing.T) {
	for _, k := range tested() {
		b := newBackend(k, 1)
		w, r := b.team.workers[0], headOf(filled(tensor.F32, 8, 4, 64), 1)
		for _, high := range []int{packFor - 1, packFor} {
			c := w.rowColumns(r, 8, high)
			require.Equal(t, k.nr <= 16 && high == packFor, c.step == k.nr, "%s, %d rows high", k.name, high)
			for i := range 8 {
				for j := range 64 {
					require.Equal(t, r.v.f[i*r.ld+j], c.v[j/k.nr*c.next+i*c.step+j%k.nr],
						"%s: %d, %d", k.name, i, j)
				}
			}
		}
		require.NoError(t, b.Close())
	}
}

func TestLog2(t *testing.T) {
	for x := float32(1e-30); x < 1e30; x *= 1.0137 {
		require.InEpsilon(t, 1+math.Abs(math.Log2(float64(x))), 1+math.Abs(log2(x)), 2e-9, "%g", x)
	}
	require.Equal(t, math.Inf(-1), log2(0))
	require.True(t, math.IsNaN(log2(float32(math.NaN()))))
}
