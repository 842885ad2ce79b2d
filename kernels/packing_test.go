package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPacking: in every form a number comes back as the one of its group that is nearest, packed again it is
// the same, and zeros are zeros; what String writes PackingOf reads.
func TestPacking(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for form := 1; form < len(PackedForms); form++ {
		f := PackedForms[form]
		require.Len(t, f.Table, 1<<f.Bits, f.Name)
		for _, group := range []int{f.Group, 32, 0} {
			p := Packing{form, group}
			q, err := PackingOf(p.String())
			require.NoError(t, err)
			require.Equal(t, p, q)
			require.Equal(t, p, PackingAt(p.Attr()))
			for _, k := range []int{1, 7, 64, 200} {
				x, y := make([]float32, k), make([]float32, k)
				for i := range x {
					x[i] = float32(r.NormFloat64())
				}
				clear(x[min(k, 128):min(k, 160)])
				_, words := p.Words(k)
				row := make([]byte, 4*words)
				p.Pack(row, x)
				p.Decode(y, row, k, 0)
				size := group
				if size == 0 {
					size = k
				}
				for i := range x {
					scale, zero := p.group(row, k, i/size)
					best := math.Inf(1)
					for _, v := range f.Table {
						if d := math.Abs(float64((v-zero)*scale - x[i])); d < best {
							best = d
						}
					}
					require.InDelta(t, best, math.Abs(float64(y[i]-x[i])), 1e-6, "%v %d %d", p, k, i)
				}
				again := make([]byte, 4*words)
				p.Pack(again, y)
				z := make([]float32, k)
				p.Decode(z, again, k, 0)
				for i := range y {
					require.InDelta(t, y[i], z[i], 1e-6, "%v", p)
				}
				if k > 3 {
					p.Decode(z[:k-3], row, k, 3)
					require.Equal(t, y[3:], z[:k-3], fmt.Sprint(p, " from a column on"))
				}
			}
		}
	}
	for _, text := range []string{"nf5", "nf4/x", "nf4/-1"} {
		_, err := PackingOf(text)
		require.ErrorContains(t, err, text)
	}
}
