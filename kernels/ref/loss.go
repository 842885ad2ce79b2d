package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// linearLSE sets, by row, the log of the sum of exponentials of the capped logits x·wᵀ and the logit of the
// target, 0 if the target lies in another part of the vocabulary, which begins at I[0]. Outputs 2 and 3, if
// wanted, are numerators for the backward.
func linearLSE(c *kernels.Call) {
	x, w := c.In[0], c.In[1]
	t, v, d := x.Rows(), w.Shape[0], lastDim(x)
	xs, ws, target := load(x), load(w), c.In[2].I32()
	lse, hit := make([]float64, t), make([]float64, t)
	for i := range t {
		z := matNT(xs[i*d:(i+1)*d], ws, 1, v, d)
		for j := range z { // logits are float32, for logits_nll too
			z[j] = float64(float32(z[j]))
		}
		z, _ = cappedLogits(z, c.Attr.F[0])
		lse[i] = logSumExp(z)
		if r := int(target[i]) - c.Attr.I[0]; r >= 0 && r < v {
			hit[i] = z[r]
		}
	}
	store(c.Out[0], lse)
	store(c.Out[1], hit)
	if len(c.Out) > 2 && c.Out[2] != nil {
		keepNumerators(x, w, c.Out[2], c.Out[3], c.Attr.F[0])
	}
}

// cappedLogits puts a row of logits under a soft cap, and gives the derivatives.
func cappedLogits(z []float64, most float64) (y, slope []float64) {
	slope = make([]float64, len(z))
	for i, x := range z {
		z[i], slope[i] = capped(x, most)
	}
	return z, slope
}

// keepNumerators computes e and top of linear_lse.
func keepNumerators(x, w, e, top *tensor.Tensor, most float64) {
	t, v, d := x.Rows(), w.Shape[0], lastDim(x)
	xs, ws := load(x), load(w)
	var es, tops []float64
	less := 0.0
	if e.DType == tensor.F16 {
		less = 8
	}
	for i := range t {
		z, slope := cappedLogits(matNT(xs[i*d:(i+1)*d], ws, 1, v, d), most)
		for j := 0; j < v; j += kernels.LSEBlock {
			m, n := numerators(z[j:min(j+kernels.LSEBlock, v)], less)
			for k := range n {
				n[k] *= slope[j+k]
			}
			es, tops = append(es, n...), append(tops, m)
		}
	}
	store(e, es)
	store(top, tops)
}

// numerators gives a maximum of one block of logits, less some, and the exponentials below it.
func numerators(z []float64, less float64) (top float64, e []float64) {
	top = math.Inf(-1)
	for _, x := range z {
		if x > top {
			top = x
		}
	}
	if top -= less; math.IsInf(top, -1) {
		top = 0
	}
	for _, x := range z {
		e = append(e, math.Exp(x-top))
	}
	return top, e
}

// lseJoin joins the parts' logarithms of sums: y[i] = log Σ exp(l[i,·]).
func lseJoin(c *kernels.Call) {
	l, n := load(c.In[0]), lastDim(c.In[0])
	y := make([]float64, c.Out[0].Len())
	for i := range y {
		y[i] = logSumExp(l[i*n : (i+1)*n])
	}
	store(c.Out[0], y)
}

// nll sets Σ weight·(lse − hit) over the rows that have a target.
func nll(c *kernels.Call) {
	lse, hit, target, weight := load(c.In[0]), load(c.In[1]), c.In[2].I32(), load(c.In[3])
	s := 0.0
	for i := range lse {
		if target[i] >= 0 {
			s += weight[i] * (lse[i] - hit[i])
		}
	}
	store(c.Out[0], []float64{s})
}

// gradLogits is row i of dz from the numerators of linear_lse.
func gradLogits(e, top []float64, target int32, base int, lse, scale float64, slope func(j int) float64) []float64 {
	dz := make([]float64, len(e))
	if target < 0 {
		return dz
	}
	for j := range dz {
		dz[j] = scale * e[j] * probability(top[j/kernels.LSEBlock]-lse)
	}
	if r := int(target) - base; r >= 0 && r < len(dz) {
		dz[r] -= scale * slope(r)
	}
	return dz
}

// linearCE is linear_ce_dx, linear_ce_dw and linear_ce_bwd: the outputs tell which gradients are wanted.
func linearCE(c *kernels.Call) {
	var dx, dw *tensor.Tensor
	switch c.Op {
	case kernels.LinearCEDX:
		dx = c.Out[0]
	case kernels.LinearCEDW:
		dw = c.Out[0]
	default:
		dx, dw = c.Out[0], c.Out[1]
	}
	x, w := load(c.In[0]), load(c.In[1])
	v, d := c.In[1].Shape[0], c.In[1].Shape[1]
	target, lse, weight, seed := c.In[2].I32(), load(c.In[3]), load(c.In[4]), load(c.In[5])[0]
	gx, gw := make([]float64, len(x)), make([]float64, len(w))
	e, top := tensor.Make(c.In[0].DType, len(target), v), tensor.Make(tensor.F32, len(target),
		(v+kernels.LSEBlock-1)/kernels.LSEBlock)
	if len(c.In) > 6 && c.In[6] != nil {
		e, top = c.In[6], c.In[7]
	} else {
		keepNumerators(c.In[0], c.In[1], e, top, c.Attr.F[0])
	}
	es, tops, n := load(e), load(top), lastDim(top)
	for i := range target {
		dz := gradLogits(es[i*v:(i+1)*v], tops[i*n:(i+1)*n], target[i], c.Attr.I[0], lse[i], seed*weight[i],
			func(j int) float64 {
				_, slope := capped(dot(x[i*d:(i+1)*d], w[j*d:(j+1)*d]), c.Attr.F[0])
				return slope
			})
		for j, g := range dz {
			if dx != nil {
				axpy(gx[i*d:(i+1)*d], g, w[j*d:])
			}
			if dw != nil {
				axpy(gw[j*d:(j+1)*d], g, x[i*d:])
			}
		}
	}
	if dx != nil {
		store(dx, gx)
	}
	if dw != nil {
		storeOrAdd(dw, gw, c.Attr.I[1])
	}
}

// lossAndGradients is linear_ce as its parts one after another.
func lossAndGradients(c *kernels.Call) {
	x, w, target, weight, seed := c.In[0], c.In[1], c.In[2], c.In[3], c.In[4]
	lse, hit, all := tensor.Make(tensor.F32, x.Rows(), 1), tensor.Make(tensor.F32, x.Rows()),
		tensor.Make(tensor.F32, x.Rows())
	linearLSE(&kernels.Call{In: []*tensor.Tensor{x, w, target}, Out: []*tensor.Tensor{lse, hit},
		Attr: kernels.Attr{F: c.Attr.F}})
	lseJoin(&kernels.Call{In: []*tensor.Tensor{lse}, Out: []*tensor.Tensor{all}})
	nll(&kernels.Call{In: []*tensor.Tensor{all, hit, target, weight}, Out: c.Out[:1]})
	linearCE(&kernels.Call{Op: kernels.LinearCEBwd, In: []*tensor.Tensor{x, w, target, all, weight, seed},
		Out: c.Out[2:4], Attr: c.Attr})
	if len(c.Out) > 4 {
		copy(c.Out[4].F32(), all.F32())
		copy(c.Out[5].F32(), hit.F32())
	}
}
