package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

func init() {
	table[kernels.LowError], table[kernels.LowChoice] = lowError, lowChoice
}

func lowChoice(c *kernels.Call) {
	errors := c.In[0].F32()
	if c.In[1].F64()[kernels.ClipOverflow] != 0 && finite(errors) {
		return
	}
	kernels.WatchOf(c.Attr).Choose(c.Out[0].F32(), errors)
}

func finite(v []float32) bool {
	for _, x := range v {
		if x-x != 0 {
			return false
		}
	}
	return true
}

// lowError takes the first rows and columns of each product and computes it twice.
func lowError(c *kernels.Call) {
	e := make([]float64, kernels.ChoiceLen)
	defer func() { store(c.Out[0], e) }()
	if c.In[3].F32()[kernels.ChoiceNext] > 0 {
		return
	}
	from, to, group := kernels.Watched(c)
	x, dy := c.In[0].RowSlice(from, to), c.In[2].RowSlice(from, to)
	w := c.In[1]
	if len(w.Shape) == 3 {
		w = w.RowSlice(group, group+1)
		defer w.Release()
	}
	w = w.Alias(c.In[1].Shape[len(c.In[1].Shape)-2:]...)
	defer w.Release()
	defer x.Release()
	defer dy.Release()
	rows, n, k := to-from, lastDim(dy), lastDim(x)
	few, part, wide := min(rows, kernels.WatchRows), min(n, kernels.WatchColumns), min(k, kernels.WatchColumns)
	p := kernels.Precisions[c.Attr.I[1]]
	for product, of := range [3][2]sample{
		{{x, few, k, false}, {w, part, k, false}},
		{{dy, few, n, false}, {w, n, wide, true}},
		{{dy, rows, min(n, kernels.WatchRows), true}, {x, rows, wide, true}},
	} {
		first, second := p.Grains(product)
		a, la := of[0].both(first, e, product)
		b, lb := of[1].both(second, e, product)
		for i := range a {
			for j := range b {
				var whole, low float64
				for s := range a[i] {
					whole += a[i][s] * b[j][s]
					low += la[i][s] * lb[j][s]
				}
				e[kernels.ErrorAt(product, kernels.ErrorSquares)] += (low - whole) * (low - whole)
				e[kernels.ErrorAt(product, kernels.ErrorOf)] += whole * whole
			}
		}
	}
}

// sample is the beginning of an operand of a product; turned is one that is summed along its rows.
type sample struct {
	of            *tensor.Tensor
	rows, columns int
	turned        bool
}

// both are the numbers of the sample as they are and as they are turned and rounded, which a product of such does not
// see, by what a product has for each and then by what it sums; what was lost is added to the errors of the product.
func (s sample) both(g kernels.Grain, e []float64, product int) (whole, low [][]float64) {
	all := load(s.of)
	width := lastDim(s.of)
	wide := make([]float32, len(all))
	for i, x := range all {
		wide[i] = float32(x)
	}
	most := greatest(wide)
	part := tensor.Make(s.of.DType, s.rows, s.columns)
	v := make([]float64, 0, part.Len())
	for r := range s.rows {
		v = append(v, all[r*width:r*width+s.columns]...)
	}
	store(part, v)
	r := load(roundedOf(part, g, &most))
	s.lost(v, g, most, e, product)
	outer, inner := s.rows, s.columns
	if s.turned {
		outer, inner = inner, outer
	}
	whole, low = make([][]float64, outer), make([][]float64, outer)
	for o := range outer {
		for i := range inner {
			at := o*s.columns + i
			if s.turned {
				at = i*s.columns + o
			}
			whole[o], low[o] = append(whole[o], v[at]), append(low[o], r[at])
		}
	}
	return whole, low
}

// lost counts the numbers of a sample, before any turn, that become 0 or are beyond the greatest.
func (s sample) lost(v []float64, g kernels.Grain, all float32, e []float64, product int) {
	high, broad := g.Rows, g.Columns
	if g.Whole() {
		high, broad = max(1, s.rows), max(1, s.columns)
	}
	least := math.Ldexp(1, g.Number.Least-g.Number.Mantissa) / 2
	for r := 0; r < s.rows; r += high {
		for c := 0; c < s.columns; c += broad {
			var of []float32
			for i := r; i < min(r+high, s.rows); i++ {
				for j := c; j < min(c+broad, s.columns); j++ {
					of = append(of, float32(v[i*s.columns+j]))
				}
			}
			by, _ := g.Factor(greatest(of), all)
			for _, x := range of {
				a := math.Abs(float64(x * by))
				if x != 0 {
					e[kernels.ErrorSeen]++
				}
				if x != 0 && a <= least {
					e[kernels.ErrorAt(product, kernels.ErrorFlushed)]++
				}
				if a > float64(g.Number.Most)*kernels.Beyond {
					e[kernels.ErrorAt(product, kernels.ErrorCut)]++
				}
			}
		}
	}
}
