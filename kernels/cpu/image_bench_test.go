package cpu

import (
	"math"
	"testing"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// BenchmarkImage gives the time of what a ResNet computes beside convolutions, for 16 pictures of 96 by 96,
// and of attention over short sequences, as a policy has them: 16 of ten rows, 8 heads of 32.
func BenchmarkImage(b *testing.B) {
	be := newBackend(levels()[0], 1)
	defer be.Close() //nolint:errcheck // it ends threads
	run := func(name string, c *kernels.Call, work float64, unit string) {
		b.Run(name, func(b *testing.B) { bench(b, be, c, work, unit) })
	}
	win := kernels.Window{Stride: 2, Dilation: 1, Before: 1, After: 1, Size: 3}
	at := kernels.Attr{I: [4]int{kernels.MaxPool, win.Pack(), win.Pack()}}
	x, y := filled(tensor.F32, 16, 48, 48, 64), filled(tensor.F32, 16, 24, 24, 64)
	dx, size := filled(tensor.F32, 16, 48, 48, 64), float64(4*(16*48*48*64))
	run("pool", &kernels.Call{Op: kernels.Pool, In: ts{x}, Out: ts{y}, Attr: at}, 1.25*size, "GB/s")
	run("pool_bwd", &kernels.Call{Op: kernels.PoolBwd, In: ts{y, x}, Out: ts{dx}, Attr: at}, 2.25*size,
		"GB/s")
	v, row, one := filled(tensor.F32, 64), filled(tensor.F32, 1, 64), filled(tensor.F32, 1, 64)
	for i := range v.F32() {
		v.F32()[i] += 2
	}
	run("frozen_norm", &kernels.Call{Op: kernels.FrozenNorm, In: ts{x, v, v, v, v}, Out: ts{dx, row, one}},
		2*size, "GB/s")
	run("frozen_norm_dx", &kernels.Call{Op: kernels.FrozenNormDX, In: ts{x, v, row}, Out: ts{dx}}, 2*size,
		"GB/s")
	relu := kernels.Attr{I: [4]int{kernels.ReLU}}
	run("act", &kernels.Call{Op: kernels.Act, In: ts{x}, Out: ts{dx}, Attr: relu}, 2*size, "GB/s")
	run("act_bwd", &kernels.Call{Op: kernels.ActBwd, In: ts{x, x}, Out: ts{dx}, Attr: relu}, 3*size, "GB/s")

	const t, h, d = 160, 8, 32
	var bounds []int32
	for i := int32(0); i <= t; i += 10 {
		bounds = append(bounds, i)
	}
	cu, q := tensor.Of(tensor.I32, bounds, len(bounds)), filled(tensor.F32, t, h, d)
	o, lse, scale := filled(tensor.F32, t, h, d), tensor.Make(tensor.F32, t, h), kernels.Attr{}
	scale.F[0] = 1 / math.Sqrt(d)
	flops := float64(4 * t * 10 * h * d)
	run("attention", &kernels.Call{Op: kernels.Attention, In: ts{q, q, q, cu, cu}, Out: ts{o, lse},
		Attr: scale}, flops, "GF/s")
	run("attention_bwd", &kernels.Call{Op: kernels.AttentionBwd, In: ts{o, q, q, q, o, lse, cu, cu},
		Attr: scale,
		Out:  ts{filled(tensor.F32, t, h, d), filled(tensor.F32, t, h, d), filled(tensor.F32, t, h, d)}},
		2.5*flops, "GF/s")
}
