package cpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

type ts = []*tensor.Tensor

// BenchmarkOps gives the time of the operations of a training step besides products: batch 4, length 512,
// 512 wide, 8 heads of 64, 1408 inner, vocabulary 32000.
func BenchmarkOps(b *testing.B) {
	const t, d, ff, v, h = 2048, 512, 1408, 32000, 8
	for _, a := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, k := range levels() {
			if k.name == "go" || a == tensor.F32 && k.amx {
				continue
			}
			be := newBackend(k, 1)
			run := func(name string, c *kernels.Call, work float64, unit string) {
				b.Run(fmt.Sprintf("%v/%s/%s", a, k.name, name),
					func(b *testing.B) { bench(b, be, c, work, unit) })
			}
			x, y, w, rstd := filled(a, t, d), filled(a, t, d), filled(a, d), filled(tensor.F32, t)
			size := float64(t * d * a.Size())
			run("rmsnorm", &kernels.Call{Op: kernels.RMSNorm, In: ts{x, w}, Out: ts{y, rstd}}, 2*size, "GB/s")
			run("rmsnorm_dx", &kernels.Call{Op: kernels.RMSNormDX, In: ts{x, x, w, rstd}, Out: ts{y}},
				3*size, "GB/s")
			run("rmsnorm_dw", &kernels.Call{Op: kernels.RMSNormDW, In: ts{x, x, rstd},
				Out: ts{filled(tensor.F32, d)}}, 2*size, "GB/s")
			run("sum", &kernels.Call{Op: kernels.Sum, In: ts{x, x}, Out: ts{y}}, 3*size, "GB/s")
			q, cos := filled(a, t, h, 64), filled(tensor.F32, t, 32)
			run("rope", &kernels.Call{Op: kernels.Rope, In: ts{q, cos, cos}, Out: ts{filled(a, t, h, 64)},
				Attr: kernels.Attr{I: [4]int{1}}}, 2*size, "GB/s")
			g, u, m := filled(a, t, ff), filled(a, t, ff), filled(a, t, ff)
			inner := float64(t * ff * a.Size())
			run("swiglu", &kernels.Call{Op: kernels.SwiGLU, In: ts{g, u}, Out: ts{m}}, 3*inner, "GB/s")
			run("swiglu_bwd", &kernels.Call{Op: kernels.SwiGLUBwd, In: ts{m, g, u},
				Out: ts{filled(a, t, ff), filled(a, t, ff)}}, 5*inner, "GB/s")
			attnBench(be, run, a, q)
			if a == tensor.F32 {
				const n = 8 << 20
				p, mm, vv, gg := filled(tensor.F32, n), filled(tensor.F32, n), tensor.Make(tensor.F32, n),
					filled(tensor.F32, n)
				hyper := tensor.Of(tensor.F64, []float64{1e-3, 0.9, 0.95, 1e-8, 0.1, 0.5, 0.5, 0}, 8)
				clip := tensor.Of(tensor.F64, []float64{1, 1, 0}, 3)
				run("adamw", &kernels.Call{Op: kernels.AdamW, In: ts{gg, hyper, clip}, Out: ts{p, mm, vv}},
					28*n, "GB/s")
				run("sum_squares", &kernels.Call{Op: kernels.SumSquares, In: ts{p},
					Out: ts{tensor.Make(tensor.F64, 1)}}, 4*n, "GB/s")
			}
			lossBench(run, a, t, d, v)
			be.Close()
		}
	}
}

func attnBench(be *Backend, run func(string, *kernels.Call, float64, string), a tensor.DType,
	q *tensor.Tensor) {
	const t, h = 2048, 8
	cu := tensor.Of(tensor.I32, []int32{0, 512, 1024, 1536, 2048}, 5)
	o, lse := filled(a, t, h, 64), tensor.Make(tensor.F32, t, h)
	attr := kernels.Attr{I: [4]int{1}, F: [2]float64{1 / math.Sqrt(64)}}
	flops := float64(4) * 512 * 512 / 2 * h * 64 * 2 * 2
	run("attention", &kernels.Call{Op: kernels.Attention, In: ts{q, q, q, cu, cu}, Out: ts{o, lse},
		Attr: attr}, flops, "GF/s")
	run("attention_bwd", &kernels.Call{Op: kernels.AttentionBwd, In: ts{o, q, q, q, o, lse, cu, cu},
		Attr: attr,
		Out:  ts{filled(a, t, h, 64), filled(a, t, h, 64), filled(a, t, h, 64)}}, 2.5*flops, "GF/s")
}

func lossBench(run func(string, *kernels.Call, float64, string), a tensor.DType, t, d, v int) {
	x, w, target := filled(a, t, d), filled(a, v, d), tensor.Make(tensor.I32, t)
	lse, hit := tensor.Make(tensor.F32, t, 1), tensor.Make(tensor.F32, t)
	flops := 2 * float64(t) * float64(d) * float64(v)
	run("linear_lse", &kernels.Call{Op: kernels.LinearLSE, In: ts{x, w, target}, Out: ts{lse, hit}},
		flops, "GF/s")
	run("linear_ce_bwd", &kernels.Call{Op: kernels.LinearCEBwd,
		In: ts{x, w, target, tensor.Of(tensor.F32, lse.F32(), t), filled(tensor.F32, t),
			filled(tensor.F32, 1)},
		Out: ts{filled(a, t, d), filled(tensor.F32, v, d)}}, 3*flops, "GF/s")
}
