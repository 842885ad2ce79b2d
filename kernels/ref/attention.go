package ref

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// heads gives rows of a [rows, heads, width] tensor.
type heads struct {
	v    []float64
	h, d int
}

func loadHeads(t *tensor.Tensor) heads { return heads{load(t), t.Shape[1], t.Shape[2]} }

func zeroHeads(t *tensor.Tensor) heads {
	return heads{make([]float64, t.Len()), t.Shape[1], t.Shape[2]}
}

func (m heads) row(i, j int) []float64 { return m.v[(i*m.h+j)*m.d:][:m.d] }

// query is one row of queries and the keys it sees.
type query struct {
	row, from, to int // the query's row; the rows of keys
	q0, k0        int // where its sequence begins
}

// queries lists the rows of all sequences with the keys each sees under the attributes of attention. The
// first query of sequence s is at key place[s]; nil puts the last query at the last key.
func queries(a kernels.Attr, cuQ, cuK, place []int32) []query {
	var l []query
	for s := range len(cuQ) - 1 {
		q0, q1, k0, k1 := int(cuQ[s]), int(cuQ[s+1]), int(cuK[s]), int(cuK[s+1])
		first := (k1 - k0) - (q1 - q0)
		if place != nil {
			first = int(place[s])
		}
		for i := range q1 - q0 {
			lo, hi := 0, k1-k0
			at := i + first
			if a.I[0] == 1 {
				hi = min(hi, at+1)
			}
			if a.I[1] > 0 {
				lo = max(lo, at-a.I[1]+1)
			}
			hi = max(hi, 0)
			l = append(l, query{row: q0 + i, from: k0 + min(lo, hi), to: k0 + hi, q0: q0, k0: k0})
		}
	}
	return l
}

// mask is the optional operands of attention from blocks on.
type mask struct {
	tile, words              int
	blocks, posQ, posK, near []int32
	bias                     *distances // what is added to scores, nil for nothing
}

// maskOf reads which keys a query sees from the attributes of a call: causal or not, the window, blocks
// that see each other both ways.
func maskOf(a kernels.Attr, ops []*tensor.Tensor) (m mask) {
	m.tile = a.I[2]
	for i, v := range []*[]int32{&m.blocks, &m.posQ, &m.posK, &m.near} {
		if i < len(ops) && ops[i] != nil {
			*v = ops[i].I32()
		}
	}
	if m.blocks != nil {
		m.words = ops[0].Shape[1]
	}
	return m
}

// sees tells whether the mask lets row i of queries see row j of keys.
func (m mask) sees(i, j int) bool {
	if m.blocks != nil && uint32(m.blocks[i/m.tile*m.words+j/m.tile/32])>>(j/m.tile%32)&1 == 0 {
		return false
	}
	for a := range len(m.near) / 2 {
		x := int(m.posK[j*3+a]) - int(m.posQ[i*3+a])
		if back, ahead := int(m.near[2*a]), int(m.near[2*a+1]); back >= 0 && x < -back || ahead >= 0 && x > ahead {
			return false
		}
	}
	return true
}

func attention(c *kernels.Call) { attend(c, maskOf(c.Attr, c.In[5:]), nil) }

func attentionBwd(c *kernels.Call) { attendBwd(c, maskOf(c.Attr, c.In[8:]), nil) }

// attend is attention under a mask, with queries at given places among the keys or at their end.
func attend(c *kernels.Call, m mask, place []int32) {
	q, k, v, o := loadHeads(c.In[0]), loadHeads(c.In[1]), loadHeads(c.In[2]), zeroHeads(c.Out[0])
	lse := make([]float64, c.Out[1].Len())
	for _, r := range queries(c.Attr, c.In[3].I32(), c.In[4].I32(), place) {
		for j := range q.h {
			g := j * k.h / q.h
			s := make([]float64, r.to-r.from)
			for b := range s {
				if s[b] = math.Inf(-1); m.sees(r.row, r.from+b) {
					s[b], _ = capped(c.Attr.F[0]*dot(q.row(r.row, j), k.row(r.from+b, g)), c.Attr.F[1])
					s[b] += m.bias.of(r, r.from+b, j)
				}
			}
			l := logSumExp(s)
			lse[r.row*q.h+j] = l
			for b := range s {
				if !m.sees(r.row, r.from+b) {
					continue
				}
				axpy(o.row(r.row, j), math.Exp(s[b]-l), v.row(r.from+b, g))
			}
		}
	}
	store(c.Out[0], o.v)
	store(c.Out[1], lse)
}

// attendBwd sets dq, dk and dv of softmax(F[0]·q·kᵀ)·v from lse and delta = Σ do·o, with the slope of a soft cap.
func attendBwd(c *kernels.Call, m mask, place []int32) {
	do, q, k, v, o := loadHeads(c.In[0]), loadHeads(c.In[1]), loadHeads(c.In[2]), loadHeads(c.In[3]), loadHeads(c.In[4])
	lse := load(c.In[5])
	dq, dk, dv := zeroHeads(c.Out[0]), zeroHeads(c.Out[1]), zeroHeads(c.Out[2])
	for _, r := range queries(c.Attr, c.In[6].I32(), c.In[7].I32(), place) {
		for j := range q.h {
			g := j * k.h / q.h
			delta := dot(do.row(r.row, j), o.row(r.row, j))
			for b := r.from; b < r.to; b++ {
				if !m.sees(r.row, b) {
					continue
				}
				s, slope := capped(c.Attr.F[0]*dot(q.row(r.row, j), k.row(b, g)), c.Attr.F[1])
				p := probability(s + m.bias.of(r, b, j) - lse[r.row*q.h+j])
				ds := p * (dot(do.row(r.row, j), v.row(b, g)) - delta)
				m.bias.add(r, b, j, ds)
				ds *= c.Attr.F[0] * slope
				axpy(dq.row(r.row, j), ds, k.row(b, g))
				axpy(dk.row(b, g), ds, q.row(r.row, j))
				axpy(dv.row(b, g), p, do.row(r.row, j))
			}
		}
	}
	store(c.Out[0], dq.v)
	store(c.Out[1], dk.v)
	store(c.Out[2], dv.v)
}

// capped is x under a soft cap, with its derivative; most = 0 is none.
func capped(x, most float64) (y, slope float64) {
	if most == 0 {
		return x, 1
	}
	t := math.Tanh(x / most)
	return most * t, 1 - t*t
}

// probability is e^x of a logarithm x that a rounded lse may have put above 0, by a lot where scores are large.
func probability(x float64) float64 { return math.Exp(min(x, 0)) }

// logSumExp is stable; -Inf for no summands, NaN if one is NaN or +Inf.
func logSumExp(s []float64) float64 {
	m := math.Inf(-1)
	for _, x := range s {
		m = math.Max(m, x)
	}
	if math.IsInf(m, -1) {
		return m
	}
	t := 0.0
	for _, x := range s {
		t += math.Exp(x - m)
	}
	return m + math.Log(t)
}
