package ref

import "github.com/lfactor/lfactor/kernels"

func init() {
	table[kernels.AttentionBias] = func(c *kernels.Call) {
		attend(c, mask{bias: distancesOf(load(c.In[5]), lastDim(c.In[5]))}, nil)
	}
	table[kernels.AttentionBiasBwd] = func(c *kernels.Call) {
		d := distancesOf(load(c.In[8]), lastDim(c.In[8]))
		attendBwd(c, mask{bias: d}, nil)
		store(c.Out[3], d.grad)
	}
}

// distances is a bias of scores by the distance of key and query, and its gradient: rows of heads for the
// distances from -most to most.
type distances struct {
	v, grad     []float64
	heads, most int
}

func distancesOf(v []float64, heads int) *distances {
	return &distances{v, make([]float64, len(v)), heads, (len(v)/max(1, heads) - 1) / 2}
}

// at is where the bias of a query, a row of keys and a head lies.
func (d *distances) at(r query, key, head int) int {
	x := (key - r.k0) - (r.row - r.q0)
	return (d.most+min(max(x, -d.most), d.most))*d.heads + head
}

// of is the bias, 0 without one.
func (d *distances) of(r query, key, head int) float64 {
	if d == nil {
		return 0
	}
	return d.v[d.at(r, key, head)]
}

// add adds the gradient of a score to that of its bias.
func (d *distances) add(r query, key, head int, ds float64) {
	if d != nil {
		d.grad[d.at(r, key, head)] += ds
	}
}
