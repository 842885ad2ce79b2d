package ref

import "github.com/lfactor/lfactor/kernels"

func init() { table[kernels.AttentionPeak], table[kernels.PeakClip] = attentionPeak, peakClip }

func attentionPeak(c *kernels.Call) {
	q, k := loadHeads(c.In[0]), loadHeads(c.In[1])
	e := make([]float64, c.Out[0].Len())
	for _, r := range queries(c.Attr, c.In[2].I32(), c.In[3].I32(), nil) {
		for j := range q.h {
			g := j * k.h / q.h
			for b := r.from; b < r.to; b++ {
				at := c.Attr.I[2] + j
				e[at] = max(e[at], c.Attr.F[0]*dot(q.row(r.row, j), k.row(b, g)))
			}
		}
	}
	store(c.Out[0], e)
}

func peakClip(c *kernels.Call) {
	if c.In[1].F64()[kernels.ClipOverflow] != 0 {
		return
	}
	p, peak := c.Out[0], c.In[0].F32()
	v := load(p)
	width := len(v) / max(1, p.Shape[0])
	for i := range p.Shape[0] {
		f := float64(kernels.ShrinkOf(c, peak, i))
		for j := range v[i*width : (i+1)*width] {
			v[i*width+j] *= f
		}
	}
	store(p, v)
	if len(c.Out) > 1 && c.Out[1] != nil {
		store(c.Out[1], load(p))
	}
}
