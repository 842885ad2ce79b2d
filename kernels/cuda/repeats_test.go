//go:build cuda

package cuda

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/accel"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var onHardware = flag.Bool("hardware", false, "TestRepeats runs on the machine's own device")

// TestRepeats: sums over thousands of rows, which many blocks share, have the same bits each time: on the
// emulated device in every order of a block's threads, on the machine's own five times.
func TestRepeats(t *testing.T) {
	var d *accel.Device
	times, between := 3, func(int64) {}
	if *onHardware {
		d, times = hardware(t), 5
	} else {
		own, e := emulated(t, 0, strict)
		d, between = own, func(order int64) { e.Set(t, "order", order, 0) }
	}
	b := kernelstest.Carried(t, d, tensor.NewPool("device", 0).In(d))
	for name, c := range manyRows() {
		t.Run(name, func(t *testing.T) {
			var first [][]byte
			for i := range times {
				between(int64(i))
				for _, o := range c.Out {
					clear(o.Bytes())
				}
				b.Run(c)
				for j, o := range c.Out {
					if i == 0 {
						first = append(first, append([]byte(nil), o.Bytes()...))
					} else if c.Op != kernels.LinearCE || j != 1 { // work has no meaning
						require.Equal(t, first[j], o.Bytes(), "out %d of run %d", j, i)
					}
				}
			}
		})
	}
}

const manyTokens = 2500

// manyRows are calls whose results are sums over thousands of rows, or places among them.
func manyRows() map[string]*kernels.Call {
	r := rand.New(rand.NewPCG(3, 4))
	draw := func(shape ...int) *tensor.Tensor {
		x := tensor.Make(tensor.F32, shape...)
		for i := range x.F32() {
			x.F32()[i] = float32(r.NormFloat64())
		}
		return x
	}
	half := func(shape ...int) *tensor.Tensor {
		x, y := draw(shape...), tensor.Make(tensor.BF16, shape...)
		ref.New().Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{x}, Out: []*tensor.Tensor{y}})
		return y
	}
	ints := func(n, below int) *tensor.Tensor {
		x := tensor.Make(tensor.I32, n)
		for i := range x.I32() {
			x.I32()[i] = int32(r.IntN(below))
		}
		return x
	}
	f32 := func(shape ...int) *tensor.Tensor { return tensor.Make(tensor.F32, shape...) }
	l := func(t ...*tensor.Tensor) []*tensor.Tensor { return t }
	n := manyTokens
	attend := newAttends(tensor.BF16, n, 1, 1, 16, []int32{0, 700, 1600, int32(n)}, causal)
	cu := tensor.Of(tensor.I32, attend.cu, len(attend.cu))
	ref.New().Run(&kernels.Call{Op: kernels.Attention, In: l(attend.q, attend.k, attend.v, cu, cu),
		Out: l(attend.o, attend.lse), Attr: causal})
	x, dy := half(n, 24), half(n, 40)
	return map[string]*kernels.Call{
		"linear_dw": {Op: kernels.LinearDW, In: l(dy, x), Out: l(f32(40, 24))},
		"col_sum":   {Op: kernels.ColSum, In: l(draw(n, 40)), Out: l(f32(40))},
		"rmsnorm_dw": {Op: kernels.RMSNormDW, In: l(half(n, 24), half(n, 24), draw(n)),
			Out: l(f32(24))},
		"embed_dw":    {Op: kernels.EmbedDW, In: l(half(n, 24), ints(n, 50)), Out: l(f32(50, 24))},
		"sum_squares": {Op: kernels.SumSquares, In: l(draw(n, 40)), Out: l(tensor.Make(tensor.F64, 1))},
		"attention": {Op: kernels.Attention, In: l(attend.q, attend.k, attend.v, cu, cu),
			Out: l(tensor.Make(tensor.BF16, n, 1, 16), f32(n, 1)), Attr: causal},
		"attention_bwd": {Op: kernels.AttentionBwd, In: l(attend.do, attend.q, attend.k, attend.v, attend.o,
			attend.lse, cu, cu), Out: l(attend.dq, attend.dk, attend.dv), Attr: causal},
	}
}
