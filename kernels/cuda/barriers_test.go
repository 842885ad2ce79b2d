//go:build cuda

package cuda

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/kernelstest"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// TestPlantedBarriers: of the kernels that share memory among warps, each has other bits in some order of threads where
// a barrier is left out: what the emulator holds of them would show a barrier that is missing.
func TestPlantedBarriers(t *testing.T) {
	d, e := emulated(t, 0, strict)
	b := kernelstest.Carried(t, d, tensor.NewPool("device", 0).In(d))
	e.Set(t, "card", fewest, 0)
	small, _ := emulated(t, 0, strict)
	e.Set(t, "card", 0, 0)
	onSmall := kernelstest.Carried(t, small, tensor.NewPool("small", 0).In(small))
	all := barrierCalls()
	for _, name := range []string{"attention_256", "attention_bwd_256"} {
		all[leans+name] = all[name]
	}
	for _, name := range []string{"linear", "linear_dx", "linear_dw"} {
		all[hoppers+name] = all[name]
	}
	defer func(n int) { hopperColumns = n }(hopperColumns)
	usual := hopperColumns
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			hopperColumns = usual
			b := b
			if strings.HasPrefix(name, leans) {
				b = onSmall
			}
			barrier := barrierOf[c.Op]
			if strings.HasPrefix(name, hoppers) {
				hopperColumns, barrier = 1, 1
			}
			bits := func(order, skip int64) (l [][]byte) {
				e.Set(t, "order", order, 0)
				e.Set(t, "skip barrier", skip, 0)
				for _, o := range c.Out {
					clear(o.Bytes())
				}
				b.Run(c)
				for _, o := range c.Out {
					l = append(l, bytes.Clone(o.Bytes()))
				}
				return l
			}
			want, wrong := bits(0, 0), 0
			for order := range int64(3) {
				require.Equal(t, want, bits(order, 0), "order %d", order)
				for i, x := range bits(order, barrier) {
					if !bytes.Equal(x, want[i]) {
						wrong++
						break
					}
				}
			}
			require.NotZero(t, wrong, "no order of threads shows that a barrier is left out")
		})
	}
}

// hoppers begins the names of products that Hopper's kernels are to take, whose first barrier is that of
// the first stage.
const hoppers = "hopper_"

// leans begins the names of attention that kernels for little shared memory are to take.
const leans = "lean_"

// barrierOf is the barrier that is left out: the one behind which a tile or a sorted run is read.
var barrierOf = map[kernels.Op]int64{kernels.Linear: 1, kernels.LinearDX: 2, kernels.LinearDW: 1,
	kernels.EmbedDW:   1,
	kernels.Attention: 2, kernels.AttentionBwd: 2, kernels.RouteOrder: 2,
	kernels.AttentionSparse: 2, kernels.AttentionSparseBwd: 2, kernels.IndexTopK: 15,
	kernels.IndexLossBwd:  2,
	kernels.AttentionBias: 4, kernels.AttentionBiasBwd: 4, kernels.AttentionPeak: 2}

// barrierCalls are calls of several tiles each.
func barrierCalls() map[string]*kernels.Call {
	half := func(shape ...int) *tensor.Tensor {
		y := tensor.Make(tensor.BF16, shape...)
		ref.New().Run(&kernels.Call{Op: kernels.Cast, In: []*tensor.Tensor{numbers(shape...)},
			Out: []*tensor.Tensor{y}})
		return y
	}
	l := func(t ...*tensor.Tensor) []*tensor.Tensor { return t }
	f32 := func(shape ...int) *tensor.Tensor { return tensor.Make(tensor.F32, shape...) }
	ids := tensor.Make(tensor.I32, 700)
	for i := range ids.I32() {
		ids.I32()[i] = int32(i * 37 % 11)
	}
	calls := map[string]*kernels.Call{
		"linear": {Op: kernels.Linear, In: l(half(140, 136), half(70, 136)),
			Out: l(tensor.Make(tensor.BF16, 140, 70))},
		"linear_dx": {Op: kernels.LinearDX, In: l(half(140, 136), half(136, 72)),
			Out: l(tensor.Make(tensor.BF16, 140, 72))},
		"linear_dw": {Op: kernels.LinearDW, In: l(half(140, 72), half(140, 40)), Out: l(f32(72, 40))},
		"embed_dw":  {Op: kernels.EmbedDW, In: l(half(700, 8), ids), Out: l(f32(11, 8))},
		"route_order": {Op: kernels.RouteOrder, In: l(tensor.Of(tensor.I32, ids.I32()[:600], 300, 2),
			numbers(300, 2)),
			Out: l(tensor.Make(tensor.I32, 600), tensor.Make(tensor.I32, 300, 2), tensor.Make(tensor.I32,
				11)),
			Attr: kernels.Attr{I: [4]int{1}, F: [2]float64{0.7}}},
	}
	for name, w := range map[string]int{"64": 24, "128": 128, "256": 136} {
		a := newAttends(tensor.BF16, 150, 2, 1, w, []int32{0, 70, 150}, causal)
		cu := tensor.Of(tensor.I32, a.cu, len(a.cu))
		ref.New().Run(&kernels.Call{Op: kernels.Attention, In: l(a.q, a.k, a.v, cu, cu), Out: l(a.o,
			a.lse), Attr: causal})
		calls["attention_"+name] = &kernels.Call{Op: kernels.Attention, In: l(a.q, a.k, a.v, cu, cu),
			Out: l(tensor.Make(tensor.BF16, 150, 2, w), f32(150, 2)), Attr: causal}
		calls["attention_bwd_"+name] = &kernels.Call{Op: kernels.AttentionBwd,
			In: l(a.do, a.q, a.k, a.v, a.o, a.lse, cu, cu), Out: l(a.dq, a.dk, a.dv), Attr: causal}
	}
	for name, c := range sparseCalls(half) {
		calls[name] = c
	}
	return calls
}

// sparseCalls are calls of attention to listed keys and of its indexer, of several tiles each, and of attention
// whose scores have a bias or are looked at alone.
func sparseCalls(half func(shape ...int) *tensor.Tensor) map[string]*kernels.Call {
	const t, h, d, n = 150, 4, 24, 70
	l := func(t ...*tensor.Tensor) []*tensor.Tensor { return t }
	f32 := func(shape ...int) *tensor.Tensor { return tensor.Make(tensor.F32, shape...) }
	b16 := func(shape ...int) *tensor.Tensor { return tensor.Make(tensor.BF16, shape...) }
	idx, see, mean := tensor.Make(tensor.I32, t, n), tensor.Make(tensor.I32, t, 2), f32(t)
	for i := range t {
		see.I32()[2*i+1], mean.F32()[i] = t, 1.0/t
		for j := range n {
			idx.I32()[i*n+j] = int32((i+3*j)%t - j%9/8*t) // some name no key
		}
	}
	for i, j := range idx.I32() {
		idx.I32()[i] = max(j, -1)
	}
	scale, index := kernels.Attr{F: [2]float64{0.5}}, kernels.Attr{F: [2]float64{0.5, 0.5}}
	q, k, v, do, o, lse := half(t, h, d), half(t, 1, d), half(t, 1, d), half(t, h, d), b16(t, h, d), f32(t,
		h)
	cu, table := tensor.Of(tensor.I32, []int32{0, 70, t}, 3), numbers(41, h)
	calls := map[string]*kernels.Call{
		"attention_sparse": {Op: kernels.AttentionSparse, In: l(q, k, v, idx), Out: l(o, lse), Attr: scale},
		"index_topk": {Op: kernels.IndexTopK, In: l(q, k, numbers(t, h), see), Attr: scale,
			Out: l(tensor.Make(tensor.I32, t, n))},
		"index_loss_bwd": {Op: kernels.IndexLossBwd, Attr: index, Out: l(b16(t, h, d), b16(t, 1, d), f32(t,
			h)),
			In: l(numbers(1), half(t, h, d), half(t, 1, d), numbers(t, h), q, k, see, mean, idx)},
		"attention_bias": {Op: kernels.AttentionBias, In: l(q, k, v, cu, cu, table), Out: l(b16(t, h, d),
			f32(t, h)), Attr: scale},
		"attention_peak": {Op: kernels.AttentionPeak, In: l(q, k, cu, cu), Out: l(f32(1, h)), Attr: scale},
	}
	back := func(name string, op kernels.Op, forward *kernels.Call, more []*tensor.Tensor,
		out ...*tensor.Tensor) {
		ref.New().Run(forward)
		in := append(l(do, q, k, v, forward.Out[0], forward.Out[1]), more...)
		calls[name] = &kernels.Call{Op: op, In: in, Attr: scale,
			Out: append(l(b16(t, h, d), b16(t, 1, d), b16(t, 1, d)), out...)}
	}
	again := *calls["attention_sparse"]
	again.Out = l(b16(t, h, d), f32(t, h))
	back("attention_sparse_bwd", kernels.AttentionSparseBwd, &again, l(idx))
	again = *calls["attention_bias"]
	again.Out = l(b16(t, h, d), f32(t, h))
	back("attention_bias_bwd", kernels.AttentionBiasBwd, &again, l(cu, cu, table), f32(41, h))
	return calls
}
