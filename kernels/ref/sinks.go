package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
)

// The operations of gpt-oss: a further logit of each head, and gates with bounds.
func init() {
	table[kernels.AttentionSink], table[kernels.AttentionSinkBwd] = attentionSink, attentionSinkBwd
	table[kernels.BoundedGLU], table[kernels.BoundedGLUBwd] = boundedGLU, boundedGLUBwd
	table[kernels.GroupIDs] = groupIDs
}

// attentionSink scales the output of each head by exp(lse − all) with all = log(exp(lse) + exp(sink)), as
// if the softmax had one more key, without a value; all is the second output.
func attentionSink(c *kernels.Call) {
	o, lse, sink := loadHeads(c.In[0]), load(c.In[1]), load(c.In[2])
	all := make([]float64, len(lse))
	for i := range lse {
		all[i] = logSumExp([]float64{lse[i], sink[i%o.h]})
		row := o.row(i/o.h, i%o.h)
		for j := range row {
			row[j] *= math.Exp(lse[i] - all[i])
		}
	}
	store(c.Out[0], o.v)
	store(c.Out[1], all)
}

// attentionSinkBwd sets or adds the gradient of the sinks.
func attentionSinkBwd(c *kernels.Call) {
	dy, y, all, sink := loadHeads(c.In[0]), loadHeads(c.In[1]), load(c.In[2]), load(c.In[3])
	d := make([]float64, len(sink))
	for i := range all {
		row, head := i/y.h, i%y.h
		d[head] -= math.Exp(sink[head]-all[i]) * dot(dy.row(row, head), y.row(row, head))
	}
	storeOrAdd(c.Out[0], d, c.Attr.I[0])
}

// bounds gives the two factors of bounded_glu, before and after the sigmoid's argument is scaled, and
// whether each number is within its bounds.
func bounds(a kernels.Attr, g, u float64) (gate, up float64, gIn, uIn bool) {
	most := a.F[0]
	return math.Min(g, most), math.Min(math.Max(u, -most), most) + 1, !(g > most), !(u > most || u < -most)
}

// boundedGLU sets y = a·sigmoid(F[1]·a)·(b + 1), where a is g bounded from above by F[0] and b is u bounded
// from both sides.
func boundedGLU(c *kernels.Call) {
	g, u := load(c.In[0]), load(c.In[1])
	for i := range g {
		gate, up, _, _ := bounds(c.Attr, g[i], u[i])
		g[i] = gate * sigmoid(c.Attr.F[1]*gate) * up
	}
	store(c.Out[0], g)
}

// boundedGLUBwd is its gradient: 0 beyond the bounds.
func boundedGLUBwd(c *kernels.Call) {
	dy, g, u := load(c.In[0]), load(c.In[1]), load(c.In[2])
	for i := range g {
		gate, up, gIn, uIn := bounds(c.Attr, g[i], u[i])
		s := sigmoid(c.Attr.F[1] * gate)
		g[i], u[i] = 0, 0
		if gIn {
			g[i] = dy[i] * up * s * (1 + c.Attr.F[1]*gate*(1-s))
		}
		if uIn {
			u[i] = dy[i] * gate * s
		}
	}
	store(c.Out[0], g)
	store(c.Out[1], u)
}

// groupIDs sets the group of every row from the borders of the groups, and −1 for rows of none.
func groupIDs(c *kernels.Call) {
	ids := c.Out[0].I32()
	for i := range ids {
		ids[i] = -1
	}
	eachGroup(c.In[0].I32(), func(g, from, to int) {
		for i := from; i < to; i++ {
			ids[i] = int32(g)
		}
	})
}
