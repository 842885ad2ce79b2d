package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// LossRows is the part of linear_lse and linear_ce_bwd that is no product, for a benchmark: the loss of given logits and their
// gradient. One block of logits, where products would leave it, stands for each.
type LossRows struct {
	d         tensor.DType
	t, v      int
	kept      *ceKept
	z         []float32
	g         *ceGrad
	top, sum  []float32
	gradients view // of one block
}

// NewLossRows is for rows of v logits of activation dtype d, one for each target.
func NewLossRows(d tensor.DType, target *tensor.Tensor, v int) *LossRows {
	t, n := target.Len(), ceilDiv(v, ceCols)
	r := &LossRows{d: d, t: t, v: v, z: make([]float32, t*(ceCols+cePad)), kept: &ceKept{viewOf(tensor.Make(d, t, v)), v, make([]float32, t*n), n},
		top: make([]float32, t), sum: make([]float32, t)}
	r.g = &ceGrad{target: target.I32(), lse: make([]float32, t), weight: make([]float32, t), seed: 1, kept: r.kept}
	for i := range r.g.weight {
		r.g.weight[i] = 1 / float32(t)
	}
	for i := range r.z {
		r.z[i] = float32(i%1999) / 500
	}
	if d != tensor.F32 {
		r.gradients = viewOf(tensor.Make(d, t, ceCols+cePad))
	}
	return r
}

// Bytes is what the rows read and write at least: logits, kept exponentials and gradients.
func (r *LossRows) Bytes() float64 {
	return float64(r.t) * float64(r.v) * float64(4+3*r.d.Size())
}

// Run is one loss and one gradient.
func (r *LossRows) Run(b *Backend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(r.top)
	clear(r.sum)
	for _, f := range []func(w *worker, i, j0, n int){
		func(w *worker, i, j0, n int) {
			w.addExp(r.kept, r.d, r.z[i*(ceCols+cePad):][:n], i, j0, &r.top[i], &r.sum[i])
		},
		func(w *worker, i, j0, n int) {
			w.gradLogits(r.g, r.z[i*(ceCols+cePad):][:n], r.gradients.from(i*(ceCols+cePad)), i, j0)
		},
	} {
		for j0 := 0; j0 < r.v; j0 += ceCols {
			n := min(ceCols, r.v-j0)
			b.rows(r.t, n, func(w *worker, from, to int) {
				for i := from; i < to; i++ {
					f(w, i, j0, n)
				}
			})
		}
		for i := range r.g.lse {
			r.g.lse[i] = r.top[i] + float32(math.Log(float64(r.sum[i])))
		}
	}
}
