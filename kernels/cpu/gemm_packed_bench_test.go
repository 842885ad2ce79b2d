package cpu

import (
	"fmt"
	"testing"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// BenchmarkPacked has products with weights of four bits beside those with the same weights as numbers.
func BenchmarkPacked(b *testing.B) {
	p, err := kernels.PackingOf("nf4/64")
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range [][3]int{{1024, 576, 1536}, {1024, 1536, 576}, {1024, 576, 576}, {1024, 576, 192},
		{1024, 11008, 512}} {
		m, k, n := s[0], s[1], s[2]
		be := newBackend(levels()[0], 1)
		_, all := p.Words(k)
		w := tensor.Make(tensor.I32, n, all)
		x, y, full := filled(tensor.F32, m, k), filled(tensor.F32, m, n), filled(tensor.F32, n, k)
		flops := 2 * float64(m) * float64(k) * float64(n)
		for _, c := range []struct {
			name string
			c    *kernels.Call
		}{
			{"linear", &kernels.Call{Op: kernels.Linear, In: ts{x, full}, Out: ts{y}}},
			{"packed", &kernels.Call{Op: kernels.PackedLinear, In: ts{x, w}, Out: ts{y}, Attr: p.Attr()}},
			{"linear_dx", &kernels.Call{Op: kernels.LinearDX, In: ts{y, full}, Out: ts{x}}},
			{"packed_dx", &kernels.Call{Op: kernels.PackedLinearDX, In: ts{y, w}, Out: ts{x},
				Attr: p.Attr()}},
		} {
			b.Run(fmt.Sprintf("%dx%dx%d/%s", m, k, n, c.name), func(b *testing.B) {
				bench(b, be, c.c, flops,
					"GF/s")
			})
		}
		be.Close()
	}
}
