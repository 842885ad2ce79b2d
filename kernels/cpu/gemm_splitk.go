package cpu

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Products whose sums are taken in parts have the bits of so many products of parts of the operands,
// which lie where the whole does, and of their sum.

// splitK runs f for each part of a product, which is to write part i of p, columns [from, from+k), to a
// result like y, and adds the results up.
// In the words of the field: split-K.
func (b *Backend) splitK(c *kernels.Call, f func(i, from, k int, y *tensor.Tensor)) {
	defer b.shared.release(b.shared.mark())
	k, y := lastDim(c.In[1])/kernels.Parts(c), c.Out[0]
	first, end := kernels.PartsOf(c)
	f(first, first*k, k, y)
	add := &kernels.Call{Op: kernels.Sum, In: []*tensor.Tensor{y}, Out: c.Out}
	for i := first + 1; i < end; i++ {
		more := b.like(y)
		f(i, i*k, k, more)
		add.In = append(add.In, more)
	}
	if len(add.In) > 1 {
		sum(b, add)
	}
}

// like is scratch of the shape of a tensor.
func (b *Backend) like(t *tensor.Tensor) *tensor.Tensor {
	if t.DType == tensor.F32 {
		return tensor.Of(tensor.F32, b.shared.f32(t.Len()), t.Shape...)
	}
	return tensor.Of(t.DType, b.shared.u16(t.Len()), t.Shape...)
}

// linearSplitK is linear whose sums are taken in parts.
func (b *Backend) linearSplitK(c *kernels.Call, bias []float32) {
	x, w := rowMajor(c.In[0]), rowMajor(c.In[1])
	m, n, whole := c.In[0].Rows(), c.In[1].Shape[0], lastDim(c.In[1])
	r := result{v: viewOf(c.Out[0]), ld: n, bias: bias}
	first, end := kernels.PartsOf(c)
	if first > 0 {
		bias, r.bias = nil, nil
	}
	k := whole / kernels.Parts(c)
	if r.v.d == tensor.F32 && sumPart(k) == k { // what is added is one part of a sum
		for i := first; i < end && (m > oneRow || end == first+1); i++ {
			b.gemm(r, x.column(i*k), b.keptColumn(w, i*k), m, n, k)
			if r.acc, r.bias = true, nil; i == end-1 {
				return
			}
		}
	}
	if p := (rowParts{first, end, k}); b.rowInParts(r, x, w, m, n, p) {
		return
	}
	b.splitK(c, func(i, from, k int, y *tensor.Tensor) {
		r := result{v: viewOf(y), ld: n}
		if i == 0 {
			r.bias = bias
		}
		b.gemm(r, x.column(from), b.keptColumn(w, from), m, n, k)
	})
}

// rowParts are parts [first, end) of a sum, of k each.
type rowParts struct{ first, end, k int }

// rowInParts is a product of one row in parts, if it is one that reads its right operand where it lies.
func (b *Backend) rowInParts(r result, x, y matrix, m, n int, p rowParts) bool {
	all := p.end * p.k
	if !isOneRow(r, x, y, m, n) || b.k.pairsOf(x, y) || b.lowFormOf(y, n, y.ld) != lowNone || p.k == 0 {
		return false
	}
	defer b.shared.release(b.shared.mark())
	lanes := b.k.lanes
	row := b.shared.zero(roundUp(all, lanes))
	b.k.read(row[:all], x.v, 0)
	b.rows(ceilDiv(n, lanes), lanes*(p.end-p.first)*p.k/4, func(w *worker, from, to int) {
		defer w.arena.release(w.arena.mark())
		s := rowSum{w: w, r: r, n: n, k: p.k, c: w.arena.f32(lanes), t: w.arena.f32(lanes)}
		sum, rounded := w.arena.f32(lanes), view{d: r.v.d, h: w.arena.u16(lanes)}
		for j := from * lanes; j < min(to*lanes, n); j += lanes {
			at := max(0, min(j, n-lanes))
			for i := p.first; i < p.end; i++ {
				s.x, s.y, s.r.bias = row[i*p.k:], y.column(i*p.k), nil
				s.behind, s.follows = (i-p.first)*p.k, i+1 < p.end
				if i == 0 {
					s.r.bias = r.bias
				}
				if s.group(at); r.v.d != tensor.F32 { // each part is rounded, as it would be by itself
					w.k.write(rounded, 0, s.c)
					w.k.read(s.c, rounded, 0)
				}
				if i == p.first {
					copy(sum, s.c)
				} else {
					w.k.add(sum, sum, s.c)
				}
			}
			w.k.write(r.v, j, sum[j-at:min(n-at, lanes)])
		}
	})
	return true
}

// groupedInParts is grouped_linear whose sums are taken in parts.
func (b *Backend) groupedInParts(c *kernels.Call) {
	x, w := rowMajor(c.In[0]), rowMajor(c.In[1])
	b.splitK(c, func(_, from, k int, y *tensor.Tensor) {
		b.groupsOf(c, y, x.column(from), w.column(from), k)
	})
}

// column is the matrix from a column on.
func (m matrix) column(from int) matrix {
	if m.v.len() > 0 {
		m.v = m.v.from(from)
	}
	return m
}

// keptColumn is column of a right operand, which is kept if the whole is.
func (b *Backend) keptColumn(m matrix, from int) matrix {
	whole := m.v.at()
	if m = m.column(from); from > 0 && b.kept.may[whole] && !b.kept.may[m.v.at()] {
		b.kept.may[m.v.at()] = true
		b.kept.columns[whole] = append(b.kept.columns[whole], m.v.at())
	}
	return m
}
