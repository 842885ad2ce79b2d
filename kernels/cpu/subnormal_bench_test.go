package cpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// subnormalCalls is one call of every operation that calculates, of a size that fits caches: what subnormal
// numbers cost shows best where memory does not hide it.
func subnormalCalls(a tensor.DType) (l []*kernels.Call) {
	const t, d, f, h, v, g = 256, 256, 384, 4, 512, 4
	act := func(shape ...int) *tensor.Tensor { return filled(a, shape...) }
	f32 := func(shape ...int) *tensor.Tensor { return filled(tensor.F32, shape...) }
	ids := tensor.Make(tensor.I32, t)
	for i := range ids.I32() {
		ids.I32()[i] = int32(i * 7 % t)
	}
	call := func(op kernels.Op, in, out ts, i ...int) {
		c := &kernels.Call{Op: op, In: in, Out: out, Attr: kernels.Attr{F: [2]float64{.1}}}
		copy(c.Attr.I[:], i)
		l = append(l, c)
	}
	off := tensor.Of(tensor.I32, []int32{0, 7, 40, 140, t}, g+1)
	cu := tensor.Of(tensor.I32, []int32{0, t}, 2)
	call(kernels.Linear, ts{act(t, d), act(f, d)}, ts{act(t, f)})
	call(kernels.LinearDX, ts{act(t, f), act(f, d)}, ts{act(t, d)})
	call(kernels.LinearDW, ts{act(t, f), act(t, d)}, ts{f32(f, d)}, kernels.Accumulate)
	call(kernels.GroupedLinear, ts{act(t, d), act(g, f, d), off}, ts{act(t, f)})
	call(kernels.GroupedLinearDX, ts{act(t, f), act(g, f, d), off}, ts{act(t, d)})
	call(kernels.GroupedLinearDW, ts{act(t, f), act(t, d), off}, ts{f32(g, f, d)}, kernels.Accumulate)
	call(kernels.ColSum, ts{act(t, d)}, ts{f32(d)})
	call(kernels.RMSNorm, ts{act(t, d), act(d)}, ts{act(t, d), f32(t)})
	call(kernels.RMSNormDX, ts{act(t, d), act(t, d), act(d), f32(t)}, ts{act(t, d)})
	call(kernels.RMSNormDW, ts{act(t, d), act(t, d), f32(t)}, ts{f32(d)}, kernels.Accumulate)
	call(kernels.LayerNorm, ts{act(t, d), act(d), act(d)}, ts{act(t, d), f32(t), f32(t)})
	call(kernels.LayerNormDX, ts{act(t, d), act(t, d), act(d), f32(t), f32(t)}, ts{act(t, d)})
	call(kernels.LayerNormDW, ts{act(t, d), act(t, d), f32(t), f32(t)}, ts{f32(d)})
	call(kernels.Rope, ts{act(t, h, 64), f32(t, 32), f32(t, 32)}, ts{act(t, h, 64)}, 1)
	q := func() *tensor.Tensor { return act(t, h, 64) }
	call(kernels.Attention, ts{q(), q(), q(), cu, cu}, ts{q(), f32(t, h)}, 1)
	call(kernels.AttentionBwd, ts{q(), q(), q(), q(), q(), f32(t, h), cu, cu}, ts{q(), q(), q()}, 1)
	call(kernels.SwiGLU, ts{act(t, f), act(t, f)}, ts{act(t, f)})
	call(kernels.SwiGLUBwd, ts{act(t, f), act(t, f), act(t, f)}, ts{act(t, f), act(t, f)})
	for kind := range kernels.Tanh + 1 {
		call(kernels.Act, ts{act(t, f)}, ts{act(t, f)}, kind)
		call(kernels.ActBwd, ts{act(t, f), act(t, f)}, ts{act(t, f)}, kind)
	}
	call(kernels.EmbedDW, ts{act(t, d), ids}, ts{f32(v, d)}, kernels.Accumulate)
	call(kernels.LinearLSE, ts{act(t, d), act(v, d), ids}, ts{f32(t, 1), f32(t)})
	call(kernels.LinearCEBwd, ts{act(t, d), act(v, d), ids, f32(t), f32(t), f32(1)},
		ts{act(t, d), f32(v, d)}, 0, kernels.Accumulate)
	call(kernels.LSEJoin, ts{f32(t, v)}, ts{f32(t)})
	call(kernels.NLL, ts{f32(t), f32(t), ids, f32(t)}, ts{f32(1)})
	call(kernels.Sum, ts{act(t, d), act(t, d), act(t, d)}, ts{act(t, d)})
	call(kernels.Mul, ts{act(t, d), act(t, d)}, ts{act(t, d)})
	call(kernels.Scale, ts{act(t, d)}, ts{act(t, d)})
	call(kernels.Cast, ts{act(t, d)}, ts{f32(t, d)})
	call(kernels.AddTo, ts{act(t, d)}, ts{f32(t, d)}, kernels.Accumulate)
	call(kernels.Dropout, ts{act(t, d), tensor.Make(tensor.I64, t)}, ts{act(t, d)})
	call(kernels.TakeBwd, ts{act(t, d), ids}, ts{act(t, d)})
	call(kernels.ScaleRows, ts{act(t, d), f32(t)}, ts{act(t, d)})
	call(kernels.MulCols, ts{act(t, d), act(d)}, ts{act(t, d)})
	call(kernels.MulColsDW, ts{act(t, d), act(t, d)}, ts{f32(d)})
	hyper, clip := tensor.Of(tensor.F64, []float64{1e-3, .9, .95, 1e-8, .1, .5, .5, 0}, 8),
		tensor.Of(tensor.F64, []float64{1, 1, 0}, 3)
	call(kernels.AdamW, ts{f32(t * d), hyper, clip}, ts{f32(t * d), f32(t * d), tensor.Make(tensor.F32, t*d)})
	call(kernels.SGD, ts{f32(t * d), hyper, clip}, ts{f32(t * d), f32(t * d)})
	call(kernels.SumSquares, ts{f32(t, d)}, ts{tensor.Make(tensor.F64, 1)})
	return l
}

// subnormal is the call with that share of its float32 and bfloat16 inputs, and of outputs that it adds
// to, made subnormal.
func subnormal(c *kernels.Call, share float64) (*kernels.Call, ts) {
	r := rand.New(rand.NewPCG(1, 2))
	change := func(l ts) (out ts) {
		for _, t := range l {
			if t.DType == tensor.F32 || t.DType == tensor.BF16 {
				n := tensor.Make(t.DType, t.Shape...)
				copy(n.Bytes(), t.Bytes())
				for i := range t.Len() {
					switch {
					case r.Float64() >= share:
					case t.DType == tensor.F32:
						n.F32()[i] = math.Float32frombits(1 + r.Uint32N(1<<23-1))
					default:
						n.U16()[i] = 1 + uint16(r.UintN(1<<7-1))
					}
				}
				t = n
			}
			out = append(out, t)
		}
		return out
	}
	out := change(c.Out)
	return &kernels.Call{Op: c.Op, Attr: c.Attr, In: change(c.In), Out: nil}, out
}

// BenchmarkSubnormals gives, for every operation, the time with 1 % and with all of its inputs subnormal
// over the time with normal ones: 1.10 at most is wanted. Rounds are interleaved and the shortest count.
// Outputs are restored before each run, so that what is added to is as subnormal the second time.
func BenchmarkSubnormals(b *testing.B) {
	for _, a := range []tensor.DType{tensor.F32, tensor.BF16} {
		for _, k := range levels() {
			if k.name == "go" {
				continue // it has no register to switch subnormals off
			}
			be := newBackend(k, 1)
			for _, c := range subnormalCalls(a) {
				b.Run(fmt.Sprintf("%v/%s/%s%d", a, k.name, c.Op, c.Attr.I[0]),
					func(b *testing.B) { subnormalRatio(b, be, c) })
			}
			be.Close()
		}
	}
}

func subnormalRatio(b *testing.B, be *Backend, c *kernels.Call) {
	shares := []float64{0, .01, 1}
	best := [3]time.Duration{1 << 62, 1 << 62, 1 << 62}
	var calls [3]*kernels.Call
	var outs [3]ts
	for i, s := range shares {
		calls[i], outs[i] = subnormal(c, s)
		for _, o := range outs[i] {
			calls[i].Out = append(calls[i].Out, tensor.Make(o.DType, o.Shape...))
		}
	}
	for b.Loop() {
		for i, x := range calls {
			for j, o := range outs[i] {
				copy(x.Out[j].Bytes(), o.Bytes())
			}
			start := time.Now()
			be.Run(x)
			best[i] = min(best[i], time.Since(start))
		}
	}
	b.ReportMetric(float64(best[1])/float64(best[0]), "x-1%")
	b.ReportMetric(float64(best[2])/float64(best[0]), "x-all")
}
