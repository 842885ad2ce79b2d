package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

func init() { table[kernels.Adafactor] = adafactor }

func adafactor(c *kernels.Call) {
	g, h, u := load(c.In[0]), c.In[2].F64(), c.Out[0]
	shape := c.In[0].Shape
	n, k := shape[len(shape)-2], shape[len(shape)-1]
	out := make([]float64, len(g))
	if c.In[3].F64()[kernels.ClipOverflow] != 0 {
		store(u, out)
		return
	}
	row := load(c.Out[1])
	var col []float64
	if len(c.Out) > 2 && c.Out[2] != nil {
		col = load(c.Out[2])
	}
	for e, square := range c.In[1].F64() {
		if n*k == 0 {
			continue
		}
		of := g[e*n*k : (e+1)*n*k]
		for i := range of {
			of[i] *= c.In[3].F64()[kernels.ClipFactor]
		}
		var v []float64
		if col == nil {
			v = row[e*n*k : (e+1)*n*k]
			for i, x := range of {
				v[i] += h[kernels.HyperBeta2] * (x*x - v[i])
			}
		} else {
			v = moments(of, row[e*n:(e+1)*n], col[e*k:(e+1)*k], h[kernels.HyperBeta2])
		}
		dir, sum := out[e*n*k:(e+1)*n*k], 0.0
		for i, x := range of {
			dir[i] = x / math.Sqrt(max(v[i], kernels.AdafactorLeast*kernels.AdafactorLeast))
			sum += dir[i] * dir[i]
		}
		by := 1 / max(1, math.Sqrt(sum/float64(n*k))/h[kernels.HyperClipAbove])
		if h[kernels.HyperMeasured] == 1 {
			by *= max(h[kernels.HyperFloor], math.Sqrt(square/float64(n*k)))
		}
		for i := range dir {
			dir[i] *= by
		}
	}
	store(u, out)
	store(c.Out[1], row)
	if col != nil {
		store(c.Out[2], col)
	}
}

// moments moves the mean squares of rows and columns towards those of g, and gives the second moments that
// they stand for.
func moments(g, row, col []float64, by float64) []float64 {
	n, k := len(row), len(col)
	mean := 0.0
	for i := range row {
		sum := 0.0
		for _, x := range g[i*k : (i+1)*k] {
			sum += x * x
		}
		row[i] += by * (sum/float64(k) - row[i])
		mean += row[i] / float64(n)
	}
	for j := range col {
		sum := 0.0
		for i := range row {
			sum += g[i*k+j] * g[i*k+j]
		}
		col[j] += by * (sum/float64(n) - col[j])
	}
	v := make([]float64, len(g))
	for i := range row {
		for j := range col {
			v[i*k+j] = row[i] * col[j] / max(mean, kernels.AdafactorLeast)
		}
	}
	return v
}
