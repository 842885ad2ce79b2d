package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// LossRows is the part of linear_ce that is not a product, for a benchmark: the loss of given logits and
// their gradient. One block of logits, where the product would leave it, stands for each.
type LossRows struct {
	v  int
	l  *ceLoss
	g  *ceGrad
	at int // rows at a time
}

// NewLossRows is for rows of v logits of activation dtype d, one for each target.
func NewLossRows(d tensor.DType, target *tensor.Tensor, v int) *LossRows {
	t := target.Len()
	blocks, rows, step := kernels.LossWork(d, t, v)
	work := tensor.Make(d, blocks, rows, step)
	r := &LossRows{v: v, at: rows}
	r.l = &ceLoss{x: work, top: make([]float32, t), sum: make([]float32, t), lse: make([]float32, t),
		kept: reusedNumerators(work, make([]float32, rows*blocks))}
	r.g = &ceGrad{target: target.I32(), lse: r.l.lse, weight: make([]float32, t), seed: 1, kept: r.l.kept}
	for i := range r.g.weight {
		r.g.weight[i] = 1 / float32(t)
	}
	if d != tensor.F32 {
		r.l.z = make([]float32, r.at*(ceCols+cePad))
		for i := range r.l.z {
			r.l.z[i] = float32(i%1999) / 500
		}
	}
	return r
}

// Bytes is what the rows read and write at least: logits, exponentials and gradients.
func (r *LossRows) Bytes() float64 {
	return float64(len(r.l.lse)) * float64(r.v) * float64(4+3*r.l.x.DType.Size())
}

// Run is one loss and one gradient. In float32 the gradients are then the logits of the next run.
func (r *LossRows) Run(b *Backend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(r.l.top)
	clear(r.l.sum)
	for i0 := 0; i0 < len(r.l.lse); i0 += r.at {
		m := min(r.at, len(r.l.lse)-i0)
		r.l.kept.from = i0
		r.blocks(b, m, func(w *worker, i, j0, n int) {
			z := r.l.z[min(len(r.l.z), i*(ceCols+cePad)):]
			if r.l.z == nil {
				e, _ := r.l.kept.at(i0+i, j0)
				z = e.f
			}
			w.addExp(r.l.kept, r.l.x.DType, z[:n], i0+i, j0, &r.l.top[i0+i], &r.l.sum[i0+i], 0)
		})
		for i := i0; i < i0+m; i++ {
			r.l.lse[i] = r.l.top[i] + float32(math.Log(float64(r.l.sum[i])))
		}
		r.blocks(b, m, func(w *worker, i, j0, n int) {
			dz, _ := r.l.kept.at(i0+i, j0)
			w.gradLogits(r.g, nil, dz, n, i0+i, j0)
		})
	}
}

// blocks runs f on m rows of each block of columns.
func (r *LossRows) blocks(b *Backend, m int, f func(w *worker, i, j0, n int)) {
	for j0 := 0; j0 < r.v; j0 += ceCols {
		n := min(ceCols, r.v-j0)
		b.rows(m, n, func(w *worker, from, to int) {
			for i := from; i < to; i++ {
				f(w, i, j0, n)
			}
		})
	}
}
