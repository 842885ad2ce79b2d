package block

import "github.com/lfactor/lfactor/kernels/grad"

// Latent is multi-head latent attention (arXiv:2405.04434 §2.1): keys and values of all heads are made from one narrow
// row a token, the latent, and each head's key has a part that turns with its place and is the same for all heads.
// Heads' numbers that turn come first here, in queries and keys alike, which changes no score.
// In the words of the field: MLA.
type Latent struct {
	Hidden, Heads int
	QRank         int // width of the latent that queries are made from; 0 makes them from the residual stream
	KVRank        int // width of the latent of keys and values
	// numbers of a head's query and key that turn and that do not, and of its value
	Turning, Still, Value int
	Norm                  Norm // of latents
	Bias                  bool // what makes the latents and the projection behind attention have biases
	Pairs                 bool // neighbouring numbers turn together
	Scale                 float64
	Index                 Indexer // of the keys that a query reads
}

// Size implements Part.
func (a Latent) Size() int {
	key := a.Turning + a.Still
	q := a.Hidden * a.Heads * key
	if a.QRank > 0 {
		q = a.QRank * (a.Hidden + a.Heads*key)
	}
	q += a.Index.size(a.Hidden, a.QRank)
	return q + a.Hidden*(a.KVRank+a.Turning) + a.KVRank*a.Heads*(a.Still+a.Value) + a.Heads*a.Value*a.Hidden
}

// PairWork implements Pairing: scores and values of all keys, or of those that an indexer picks, which scores all.
func (a Latent) PairWork(n int) int {
	return a.Heads*(a.Turning+a.Still+a.Value)*seen(n, a.Index.Top) + a.Index.pairWork(n)
}

// absorbs reports whether heads read the latent itself: what makes a head's keys of it is applied to the query instead,
// and what makes values of it to the result. A sum is longer then, but a query's keys are one row each for all heads,
// which sparse attention gathers once. Attention to all keys does with the shorter sums.
func (a Latent) absorbs(r *Rec, name string) bool {
	return a.Index.Top > 0 && (!r.Indexing.Dense || r.T.NoGrad) &&
		!r.Lora.Match(name+".k_b_proj") && !r.Lora.Match(name+".v_b_proj")
}

// Record implements Part. Data: positions [t], cu_seqlens.
func (a Latent) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	t, whole := r.T, LinearOpts{Rep: true, Bias: a.Bias}
	heads := func(which string, x *grad.Value, in, width int) *grad.Value {
		return t.Heads(r.Linear(name+"."+which, x, a.Heads*width, in, LinearOpts{Unit: width}), width)
	}
	latent := func(which, norm string, rank int) *grad.Value {
		return a.Norm.Record(r, name+"."+norm, r.Linear(name+"."+which, h, rank, a.Hidden, whole), rank)
	}
	var q, qa *grad.Value
	if key := a.Turning + a.Still; a.QRank > 0 {
		qa = latent("q_a_proj", "q_a_layernorm", a.QRank)
		q = heads("q_b_proj", qa, a.QRank, key)
	} else {
		q = heads("q_proj", h, a.Hidden, key)
	}
	c := latent("kv_a_proj", "kv_a_layernorm", a.KVRank)
	turning := t.Heads(r.Linear(name+".k_rope_proj", h, a.Turning, a.Hidden, whole), a.Turning)
	cos, sin := r.angles(0)
	q, turning = t.Rope(q, cos, sin, a.Pairs), t.Rope(turning, cos, sin, a.Pairs)
	var o *grad.Value
	if a.absorbs(r, name) {
		matrix := func(which string, rows int) *grad.Value {
			return t.OfHeads(t.Param(name+"."+which+".weight", []int{a.Heads * rows, a.KVRank}, 0, rows, true), rows)
		}
		still := t.HeadLinearT(t.Columns(q, a.Turning, a.Still), matrix("k_b_proj", a.Still))
		q = t.Concat(2, t.Columns(q, 0, a.Turning), still)
		v := t.Heads(c, a.KVRank)
		o = a.attendSparse(r, name, h, qa, q, t.JoinHeads(turning, v), v)
		o = t.HeadLinear(o, matrix("v_b_proj", a.Value))
	} else {
		k := t.JoinHeads(turning, heads("k_b_proj", c, a.KVRank, a.Still))
		v := heads("v_b_proj", c, a.KVRank, a.Value)
		if a.Index.Top > 0 {
			o = a.attendSparse(r, name, h, qa, q, k, v)
		} else {
			o = r.attend(name, q, k, v, grad.AttentionConfig{Scale: a.Scale, Causal: true, Peak: a.peaks(r, name)})
		}
	}
	return r.Linear(name+".o_proj", t.Flat(o), a.Hidden, a.Heads*a.Value, LinearOpts{Row: true,
		Unit: a.Value, Bias: a.Bias})
}
