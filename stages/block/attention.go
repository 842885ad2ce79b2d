package block

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// NoRope is the value of Attn.Rope of a layer whose queries and keys do not turn.
const NoRope = -1

// Attn is grouped-query attention (arXiv:2305.13245) with rotary embedding (arXiv:2104.09864).
// In the words of the field: attention sink, sliding window.
type Attn struct {
	Hidden, Heads, KV, HeadDim int
	QKVBias, OBias             bool
	QKNorm                     bool // a norm of each head's query and key, as in Qwen3
	QKNormLast                 bool // which is taken once they have turned
	// a norm of the query and the key over all heads together, as in OLMo 2
	QKWhole bool
	Norm    Norm // of queries and keys
	Window  int  // keys a query sees, its own among them; 0 for all
	Rope    int  // of Rec.Ropes, or NoRope
	// neighbouring numbers turn together, as in GLM, instead of those half a width apart
	Pairs bool
	Scale float64 // of scores; 0 is 1/sqrt(HeadDim)
	Cap   float64 // soft cap of scores, 0 for none
	Alibi Alibi   // linear biases, if it has slopes
	Sinks bool    // every softmax has a further logit for each head, which belongs to no key
	Gate  bool    // what attention gives is multiplied with the sigmoid of a projection
	// Sees changes what queries see where it is not all that comes before them; nil for that.
	Sees func(r *Rec, c *grad.AttentionConfig)
}

// Size implements Part.
func (a Attn) Size() int {
	n := 2 * a.Hidden * (a.Heads + a.KV) * a.HeadDim
	if a.Gate {
		n += a.Hidden * a.Heads * a.HeadDim
	}
	return n
}

// PairWork implements Pairing: scores and values.
func (a Attn) PairWork(n int) int { return 2 * a.Heads * a.HeadDim * seen(n, a.Window) }

// Record implements Part. Data: positions [t] or positions3 [t 3], cu_seqlens.
func (a Attn) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	t := r.T
	q, k, v := a.project(r, name, "q", h, a.Heads), a.project(r, name, "k", h, a.KV), a.project(r, name, "v", h, a.KV)
	if a.Rope != NoRope {
		cos, sin := r.angles(a.Rope)
		q, k = t.Rope(q, cos, sin, a.Pairs), t.Rope(k, cos, sin, a.Pairs)
	}
	if a.QKNormLast {
		q, k = a.Norm.Record(r, name+".q_norm", q, a.HeadDim), a.Norm.Record(r, name+".k_norm", k, a.HeadDim)
	}
	scale := a.Scale
	if scale == 0 {
		scale = 1 / math.Sqrt(float64(a.HeadDim))
	}
	q, k = a.Alibi.record(r, q, k, scale)
	var sink *grad.Value
	if a.Sinks {
		sink = t.Param(name+".sinks", []int{1, a.Heads}, 1, 1, false)
	}
	c := grad.AttentionConfig{Scale: scale, Cap: a.Cap, Causal: true, Window: a.Window, Sink: sink,
		Peak: a.peaks(r, name)}
	if a.Sees != nil {
		a.Sees(r, &c)
	}
	o := r.attend(name, q, k, v, c)
	y := t.Flat(o)
	if a.Gate {
		g := r.Linear(name+".gate_proj", h, a.Heads*a.HeadDim, a.Hidden, LinearOpts{Bias: a.QKVBias, Unit: a.HeadDim})
		y = t.Scale(t.Add(y, t.Mul(y, t.Act(t.Scale(g, 0.5), kernels.Tanh))),
			0.5) // sigmoid is half of 1 + tanh
	}
	return r.Linear(name+".o_proj", y, a.Hidden, a.Heads*a.HeadDim,
		LinearOpts{Bias: a.OBias, Row: true, Unit: a.HeadDim})
}

// attend is attention over keys and values that earlier chunks and generated tokens are part of.
func (r *Rec) attend(name string, q, k, v *grad.Value, c grad.AttentionConfig) *grad.Value {
	if r.T.Chunks > 1 {
		c.Carry = name
	} else {
		k, v = r.withEarlier(name, k, v)
	}
	return r.attendKeys(q, k, v, c)
}

// withEarlier gives a chunk's keys and values behind those of earlier chunks and generated tokens.
func (r *Rec) withEarlier(name string, k, v *grad.Value) (*grad.Value, *grad.Value) {
	k, v = r.T.Carry(name+".k", k), r.T.Carry(name+".v", v)
	return r.cache(name+".k", k), r.cache(name+".v", v)
}

// attendKeys is attention to such keys and values.
func (r *Rec) attendKeys(q, k, v *grad.Value, c grad.AttentionConfig) *grad.Value {
	c.Tokens = true
	return r.T.Attention(q, k, v, r.Cu(), r.cuKeys(), c)
}

// project gives the query, the key or the value, of so many heads, normed.
func (a Attn) project(r *Rec, name, which string, h *grad.Value, heads int) *grad.Value {
	x := r.Linear(name+"."+which+"_proj", h, heads*a.HeadDim, a.Hidden, LinearOpts{Bias: a.QKVBias, Unit: a.HeadDim})
	if a.QKWhole && which != "v" { // the norm sees all heads: every rank has them
		x = r.T.WholeWidth(a.Norm.Record(r, name+"."+which+"_norm", x, heads*a.HeadDim))
	}
	x = r.T.Heads(x, a.HeadDim)
	if a.QKNorm && !a.QKNormLast && which != "v" {
		x = a.Norm.Record(r, name+"."+which+"_norm", x, a.HeadDim)
	}
	return x
}

// table is the cosines and sines of one rotary embedding.
type table struct{ cos, sin *grad.Value }

// angles records the table of rotary embedding i once a stage.
func (r *Rec) angles(i int) (cos, sin *grad.Value) {
	if have, ok := r.tables[i]; ok {
		return have.cos, have.sin
	}
	rope, name := r.Ropes[i], "inv_freq"
	if i > 0 {
		name = fmt.Sprintf("inv_freq.%d", i)
	}
	inv, scale := rope.Inverse()
	if len(rope.Sections) > 0 {
		pos := r.T.Data("positions3", tensor.I32, r.Shape.Rows, 3)
		cos, sin = r.T.RopeAxes(pos, r.T.Const(name, inv), r.T.ConstI32("rope_axis", rope.Axes()), scale)
	} else {
		cos, sin = r.T.RopeTable(r.T.Data("positions", tensor.I32, r.Shape.Rows), r.T.Const(name, inv), scale)
	}
	if r.tables == nil {
		r.tables = map[int]table{}
	}
	r.tables[i] = table{cos, sin}
	return cos, sin
}

// cache puts the cached rows in front of v and gives the whole as an output.
func (r *Rec) cache(name string, v *grad.Value) *grad.Value {
	if !r.Cached {
		return v
	}
	if r.Pool > 0 {
		r.T.Output(name, v)
		pool := r.T.Data("pool."+name, v.DType, append([]int{r.Pool}, v.Shape[1:]...)...)
		return r.T.PagedRows(pool, v, r.T.Data("paged.at", tensor.I32, r.KeyRows))
	}
	if r.Past > 0 {
		shape := append([]int{r.Past}, v.Shape[1:]...)
		v = r.T.Concat(0, r.T.Data("past."+name, r.T.DType, shape...), v)
	}
	r.T.Output(name, v)
	return v
}
