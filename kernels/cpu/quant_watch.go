package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.LowError], table[kernels.LowChoice] = lowError, lowChoice
}

func lowChoice(_ *Backend, c *kernels.Call) {
	errors := c.In[0].F32()
	if c.In[1].F64()[kernels.ClipOverflow] != 0 {
		sum := float32(0)
		for _, x := range errors {
			sum += x - x // NaN of what is not finite
		}
		if sum == 0 {
			return
		}
	}
	kernels.WatchOf(c.Attr).Choose(c.Out[0].F32(), errors)
}

// sample is the beginning of an operand [rows columns] of a product, in one whose rows are width long. A turned
// one is summed along its rows.
type sample struct {
	of            *tensor.Tensor // all of it
	rows, columns int
	turned        bool
}

// outer is how many rows or columns of the product it makes, and inner how many numbers are summed.
func (s sample) outer() int {
	if s.turned {
		return s.columns
	}
	return s.rows
}

func (s sample) inner() int { return s.rows + s.columns - s.outer() }

func (s sample) whole() matrix {
	return matrix{v: viewOf(s.of), ld: lastDim(s.of), trans: s.turned}
}

// lowError computes the first rows and columns of each product twice.
func lowError(b *Backend, c *kernels.Call) {
	defer b.shared.release(b.shared.mark())
	out := c.Out[0].F32()
	clear(out)
	if c.In[3].F32()[kernels.ChoiceNext] > 0 {
		return
	}
	from, to, group := kernels.Watched(c)
	x, dy, w := c.In[0].RowSlice(from, to), c.In[2].RowSlice(from, to), c.In[1]
	defer x.Release()
	defer dy.Release()
	n, k := lastDim(dy), lastDim(x)
	all := w.Alias(w.Len()/max(1, k), k)
	defer all.Release()
	of := all.RowSlice(group*n, (group+1)*n)
	defer of.Release()
	rows := to - from
	few, part, wide := min(rows, kernels.WatchRows), min(n, kernels.WatchColumns), min(k, kernels.WatchColumns)
	p := kernels.Precisions[c.Attr.I[1]]
	e := make([]float64, kernels.ChoiceLen)
	for product, s := range [3][2]sample{
		{{x, few, k, false}, {of, part, k, false}},
		{{dy, few, n, false}, {of, n, wide, true}},
		{{dy, rows, min(n, kernels.WatchRows), true}, {x, rows, wide, true}},
	} {
		first, second := p.Grains(product)
		b.errorOf(s, [2]kernels.Grain{first, second}, e, product)
	}
	for i, v := range e {
		out[i] = float32(v)
	}
}

// errorOf adds what a product of two samples loses by rounding them.
func (b *Backend) errorOf(s [2]sample, grains [2]kernels.Grain, e []float64, product int) {
	m, n, k := s[0].outer(), s[1].outer(), s[0].inner()
	if m == 0 || n == 0 || k == 0 {
		return
	}
	var low [2]matrix
	for i := range s {
		low[i] = b.lowSample(s[i], grains[i], e, product)
	}
	whole, rounded := b.shared.f32(m*n), b.shared.f32(m*n)
	b.blocked(result{v: view{f: whole}, ld: n}, s[0].whole(), s[1].whole(), m, n, k)
	b.blocked(result{v: view{f: rounded}, ld: n}, low[0], low[1], m, n, k)
	squares, of := 0.0, 0.0
	for i, y := range whole {
		d := float64(rounded[i]) - float64(y)
		squares, of = squares+d*d, of+float64(y)*float64(y)
	}
	e[kernels.ErrorAt(product, kernels.ErrorSquares)] = squares
	e[kernels.ErrorAt(product, kernels.ErrorOf)] = of
}

// lowSample is a sample as it is rounded. What is lost is added to the errors of the product.
func (b *Backend) lowSample(s sample, g kernels.Grain, e []float64, product int) matrix {
	var part *tensor.Tensor
	if s.of.DType == tensor.F32 {
		part = tensor.Of(tensor.F32, b.shared.f32(s.rows*s.columns), s.rows, s.columns)
	} else {
		part = tensor.Of(s.of.DType, b.shared.u16(s.rows*s.columns), s.rows, s.columns)
	}
	from, to, width := viewOf(s.of), viewOf(part), lastDim(s.of)
	wide := b.shared.f32(s.rows * s.columns)
	for r := range s.rows {
		b.k.read(wide[r*s.columns:(r+1)*s.columns], from, r*width)
		b.k.write(to, r*s.columns, wide[r*s.columns:(r+1)*s.columns])
	}
	most := float32(0)
	if g.Global() {
		row := b.shared.f32(width)
		for r := range s.of.Rows() {
			b.k.read(row, from, r*width)
			if a := b.k.absMax(row); a > most || !(a <= math.MaxFloat32) {
				most = a
			}
			if !(most <= math.MaxFloat32) {
				break
			}
		}
	}
	b.lost(wide, s, g, most, e, product)
	b.roundPart(part, part, g, &most)
	return matrix{v: to, ld: s.columns, trans: s.turned}
}

// lost counts numbers of a sample, before they are turned, that become 0 or are beyond the greatest.
func (b *Backend) lost(v []float32, s sample, g kernels.Grain, all float32, e []float64, product int) {
	high, broad := g.Rows, g.Columns
	if g.Whole() {
		high, broad = s.rows, s.columns
	}
	least := float32(math.Ldexp(1, g.Number.Least-g.Number.Mantissa-1))
	var seen, flushed, cut int
	factors := b.shared.f32(ceilDiv(s.columns, broad))
	for r := 0; r < s.rows; r += high {
		end := min(r+high, s.rows)
		clear(factors)
		for i := r; i < end; i++ {
			row := v[i*s.columns : (i+1)*s.columns]
			for j := range factors {
				a := b.k.absMax(row[j*broad : min((j+1)*broad, s.columns)])
				if a > factors[j] || a != a {
					factors[j] = a
				}
			}
		}
		for j, most := range factors {
			if math.IsInf(float64(most), 0) {
				most = float32(math.NaN())
			}
			factors[j], _ = g.Factor(most, all)
		}
		for i := r; i < end; i++ {
			for j, x := range v[i*s.columns : (i+1)*s.columns] {
				if x == 0 {
					continue
				}
				seen++
				switch a := max(x, -x) * factors[j/broad]; {
				case a <= least:
					flushed++
				case float64(a) > float64(g.Number.Most)*kernels.Beyond:
					cut++
				}
			}
		}
	}
	e[kernels.ErrorSeen] += float64(seen)
	e[kernels.ErrorAt(product, kernels.ErrorFlushed)] += float64(flushed)
	e[kernels.ErrorAt(product, kernels.ErrorCut)] += float64(cut)
}
