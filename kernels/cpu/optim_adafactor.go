package cpu

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

func init() { table[kernels.Adafactor] = adafactor }

// adafactorRows are rows of a matrix whose sums are made together: each band's are float64, and bands are added in
// order, so that no bit depends on the threads.
const adafactorRows = 64

func adafactor(b *Backend, c *kernels.Call) {
	g, u := c.In[0], c.Out[0]
	if c.In[3].F64()[kernels.ClipOverflow] != 0 {
		clear(u.F32())
		return
	}
	n, k := g.Shape[len(g.Shape)-2], g.Shape[len(g.Shape)-1]
	a := &factored{n: n, k: k, h: c.In[2].F64(), factor: float32(c.In[3].F64()[kernels.ClipFactor])}
	a.by = float32(a.h[kernels.HyperBeta2])
	for e, square := range c.In[1].F64() {
		a.g, a.u, a.square = g.F32()[e*n*k:(e+1)*n*k], u.F32()[e*n*k:(e+1)*n*k], square
		if len(c.Out) > 2 && c.Out[2] != nil {
			a.row, a.col = c.Out[1].F32()[e*n:(e+1)*n], c.Out[2].F32()[e*k:(e+1)*k]
		} else {
			a.row = c.Out[1].F32()[e*n*k : (e+1)*n*k]
		}
		b.adafactor(a)
	}
}

// factored is one matrix of a call.
type factored struct {
	n, k       int
	h          []float64
	factor, by float32
	g, u       []float32
	square     float64
	row, col   []float32 // of all numbers and none without columns
}

func (b *Backend) adafactor(a *factored) {
	if a.n*a.k == 0 {
		return
	}
	defer b.shared.release(b.shared.mark())
	bands := ceilDiv(a.n, adafactorRows)
	sums := make([]float64, bands)
	each := func(do func(band, from, to int)) {
		b.shareWork(bands, a.n*a.k*elementCost, func(_ *worker, i int) {
			do(i, i*adafactorRows, min((i+1)*adafactorRows, a.n))
		})
	}
	mean := float32(1)
	if a.col != nil {
		columns := make([][]float64, bands)
		each(func(band, from, to int) { columns[band] = a.sums(from, to) })
		mean = a.join(columns)
	}
	each(func(band, from, to int) { sums[band] = a.direct(from, to, mean) })
	sum := 0.0
	for _, x := range sums {
		sum += x
	}
	size := float64(a.n * a.k)
	f := 1 / max(1, math.Sqrt(sum/size)/a.h[kernels.HyperClipAbove])
	if a.h[kernels.HyperMeasured] == 1 {
		f *= max(a.h[kernels.HyperFloor], math.Sqrt(a.square/size))
	}
	if f != 1 {
		each(func(_, from, to int) {
			for i, x := range a.u[from*a.k : to*a.k] {
				a.u[from*a.k+i] = x * float32(f)
			}
		})
	}
}

// sums moves the moments of rows [from, to), and gives the sums of the squares of their columns.
func (a *factored) sums(from, to int) []float64 {
	columns := make([]float64, a.k)
	for i := from; i < to; i++ {
		sum := 0.0
		for j, x := range a.g[i*a.k : (i+1)*a.k] {
			x *= a.factor
			s := float64(x) * float64(x)
			sum += s
			columns[j] += s
		}
		a.row[i] += a.by * (float32(sum/float64(a.k)) - a.row[i])
	}
	return columns
}

// join moves the moments of columns by the sums of bands, and gives what those of rows are divided by.
func (a *factored) join(bands [][]float64) float32 {
	for j := range a.k {
		sum := 0.0
		for _, c := range bands {
			sum += c[j]
		}
		a.col[j] += a.by * (float32(sum/float64(a.n)) - a.col[j])
	}
	mean := 0.0
	for _, x := range a.row {
		mean += float64(x)
	}
	return max(float32(mean/float64(a.n)), kernels.AdafactorLeast)
}

// direct makes the directions of rows [from, to), and the sum of their squares.
func (a *factored) direct(from, to int, mean float32) (sum float64) {
	const least = kernels.AdafactorLeast * kernels.AdafactorLeast
	for i := from; i < to; i++ {
		g, u := a.g[i*a.k:(i+1)*a.k], a.u[i*a.k:(i+1)*a.k]
		if a.col == nil {
			v := a.row[i*a.k : (i+1)*a.k]
			for j, x := range g {
				x *= a.factor
				v[j] += a.by * (x*x - v[j])
				u[j] = x / float32(math.Sqrt(float64(max(v[j], least))))
			}
		} else {
			r := a.row[i] / mean
			for j, x := range g {
				u[j] = x * a.factor / float32(math.Sqrt(float64(max(r*a.col[j], least))))
			}
		}
		for _, x := range u {
			sum += float64(x) * float64(x)
		}
	}
	return sum
}
