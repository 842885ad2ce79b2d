package kernelstest

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/ref"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// planted is a case with one element of one input replaced, and the reference's results.
type planted struct {
	*run
	name  string
	in    []*tensor.Tensor
	leaky bool
}

// plants puts a NaN, and in float32 an infinity, into every floating-point input of every small case.
func (p Part) plants() []planted {
	var l []planted
	for _, r := range p.runs(p.Plant) {
		for i, in := range r.call().In {
			if in == nil || !in.DType.Float() || in.Len() == 0 || r.size() > plantedMax {
				continue
			}
			for _, x := range []float64{math.NaN(), math.Inf(1)}[:2-min(int(r.gen.a), 1)] {
				name := fmt.Sprintf("%s with %v in operand %d", r.name, x, i)
				at := newGen(name, r.gen.a).IntN(in.Len())
				l = append(l, planted{r, name, replace(r.call().In, i, poison(in, at, x)), r.Leaky || math.IsInf(x, 1)})
			}
		}
	}
	return l
}

const plantedMax = 12000 // elements of all operands, for speed

func (r *run) size() int {
	n := 0
	for _, t := range append(r.call().Out[:len(r.call().Out):len(r.call().Out)], r.call().In...) {
		if t != nil {
			n += t.Len()
		}
	}
	return n
}

// nonfinite expects non-finite results where the reference has them and, if nothing leaks, nowhere else.
func nonfinite(t *testing.T, b kernels.Backend, part Part) {
	for _, p := range part.plants() {
		caught(t, func() {
			want, got := p.copyCall(), p.copyCall()
			want.In, got.In = p.in, p.in
			ref.New().Run(want)
			b.Run(got)
			b.Sync()
			for j, w := range want.Out {
				if w != nil && !p.scratch(j) {
					requireClose(t, p.name, got.Out[j], w, p.bound(p.leaky))
				}
			}
		})
	}
}

func poison(t *tensor.Tensor, at int, x float64) *tensor.Tensor {
	v := values(t)
	v[at] = x
	c := clone(t)
	put(c, v)
	return c
}

func replace(l []*tensor.Tensor, i int, t *tensor.Tensor) []*tensor.Tensor {
	l = append([]*tensor.Tensor(nil), l...)
	l[i] = t
	return l
}

// inPlace runs the operations whose contract allows the output to be the first input.
func inPlace(t *testing.T, b kernels.Backend, p Part) {
	for _, r := range p.runs(0) {
		switch r.Op {
		case kernels.Rope, kernels.Sum, kernels.Scale:
		default:
			continue
		}
		apart, in := r.copyCall(), r.copyCall()
		in.In = replace(in.In, 0, clone(in.In[0]))
		in.Out[0] = in.In[0]
		b.Run(apart)
		b.Run(in)
		b.Sync()
		require.True(t, bytes.Equal(apart.Out[0].Bytes(), in.Out[0].Bytes()), "%s in place", r.name)
	}
}

// sameInOne compares linear_ce with the operations that it stands for.
func sameInOne(t *testing.T, b kernels.Backend, r *run) {
	one, bwd := r.copyCall(), r.copyCall()
	x, w, target, weight, seed := one.In[0], one.In[1], one.In[2], one.In[3], one.In[4]
	n := x.Rows()
	lse, hit, joined, loss := tensor.Make(tensor.F32, n, 1), tensor.Make(tensor.F32, n),
		tensor.Make(tensor.F32, n), tensor.Make(tensor.F32, 1)
	bwd.Op, bwd.In, bwd.Out = kernels.LinearCEBwd, tensors{x, w, target, joined, weight, seed}, bwd.Out[2:4]
	for _, c := range []*kernels.Call{one, {Op: kernels.LinearLSE, In: tensors{x, w, target}, Out: tensors{lse, hit},
		Attr: kernels.Attr{F: one.Attr.F}}, {Op: kernels.LSEJoin, In: tensors{lse}, Out: tensors{joined}},
		{Op: kernels.NLL, In: tensors{joined, hit, target, weight}, Out: tensors{loss}}, bwd} {
		b.Run(c)
	}
	b.Sync()
	for i, o := range append(append(tensors{loss, nil}, bwd.Out...), joined, hit)[:len(one.Out)] {
		require.True(t, o == nil || bytes.Equal(o.Bytes(), one.Out[i].Bytes()), "%s: out %d", r.name, i)
	}
}

// sameGradients holds linear_ce_bwd to its promises: the bits of linear_ce_dx and linear_ce_dw, and those of
// numerators that the backend itself kept.
func sameGradients(t *testing.T, b kernels.Backend, p Part) {
	for _, r := range p.runs(p.Every) {
		if r.Op == kernels.LinearCE {
			sameInOne(t, b, r)
		}
		if r.Op != kernels.LinearCEBwd {
			continue
		}
		both, dx, dw := r.copyCall(), r.copyCall(), r.copyCall()
		dx.Op, dx.Out = kernels.LinearCEDX, dx.Out[:1]
		dw.Op, dw.Out = kernels.LinearCEDW, dw.Out[1:]
		for _, c := range []*kernels.Call{both, dx, dw} {
			b.Run(c)
		}
		b.Sync()
		require.True(t, bytes.Equal(both.Out[0].Bytes(), dx.Out[0].Bytes()), "%s: dx", r.name)
		require.True(t, bytes.Equal(both.Out[1].Bytes(), dw.Out[0].Bytes()), "%s: dw", r.name)
		if len(r.call().In) > 6 {
			sameKept(t, b, r)
		}
	}
}

// sameKept compares the loss with and without keeping numerators, and gradients from kept ones with those
// from numerators that are computed again.
func sameKept(t *testing.T, b kernels.Backend, r *run) {
	kept, again := r.copyCall(), r.copyCall()
	e, top, rows := clone(kept.In[6]), clone(kept.In[7]), kept.In[0].Shape[0]
	lse := &kernels.Call{Op: kernels.LinearLSE, In: kept.In[:3],
		Out: tensors{tensor.Make(tensor.F32, rows, 1), tensor.Make(tensor.F32, rows), e, top}, Attr: r.call().Attr}
	kept.In = append(append(tensors(nil), kept.In[:6]...), e, top)
	again.In = again.In[:6]
	alone := &kernels.Call{Op: kernels.LinearLSE, In: lse.In, Out: tensors{tensor.Make(tensor.F32, rows, 1),
		tensor.Make(tensor.F32, rows)}, Attr: r.call().Attr}
	for _, c := range []*kernels.Call{lse, alone, kept, again} {
		b.Run(c)
	}
	b.Sync()
	require.True(t, bytes.Equal(lse.Out[0].Bytes(), alone.Out[0].Bytes()), "%s: lse without numerators", r.name)
	for i, o := range kept.Out {
		require.True(t, bytes.Equal(o.Bytes(), again.Out[i].Bytes()), "%s: out %d with numerators kept", r.name, i)
	}
}
