package block

import (
	"slices"

	"github.com/lfactor/lfactor/kernels/grad"
)

// Norm is the kind of a decoder's norms: RMS (arXiv:1910.07467), or with Layer the layer norm with
// a bias (arXiv:1607.06450).
type Norm struct {
	Eps   float64
	Plus  float64 // added to the weight: 1 in Gemma and Nemotron
	Layer bool
	Bare  bool // a layer norm has no bias, and an RMS norm no weight
}

// Record is the norm called name over the last axis of x, of width d.
func (n Norm) Record(r *Rec, name string, x *grad.Value, d int) *grad.Value {
	if n.Layer {
		w := r.T.Param(name+".weight", []int{d}, -1, 1, false)
		if n.Plus != 0 {
			w = r.T.Add(w, r.T.ConstOf("plus", slices.Repeat([]float32{float32(n.Plus)}, d), d))
		}
		if n.Bare {
			return r.T.LayerNorm(x, w, nil, n.Eps)
		}
		return r.T.LayerNorm(x, w, r.T.Param(name+".bias", []int{d}, -1, 1, false), n.Eps)
	}
	if n.Bare {
		return r.T.UnitNorm(x, n.Eps)
	}
	return r.T.RMSNormPlus(x, r.T.Param(name+".weight", []int{d}, -1, 1, false), n.Eps, n.Plus)
}

// Part is what a layer adds to its residual stream: a mixer of tokens, such as attention, or an MLP.
type Part interface {
	// Record is the part called name on normed rows h [t hidden]; the result [t hidden] may be partial.
	Record(r *Rec, name string, h *grad.Value) *grad.Value
	// Size is the number of weights that a token passes: the measure of work for cutting pipelines.
	Size() int
}

// Pairing is a part whose queries see keys of other tokens.
type Pairing interface {
	// PairWork is what a token of a sequence of n tokens multiplies with those that it sees, in the mean: the
	// unit of Part.Size.
	PairWork(n int) int
}

// seen is how many keys a token of a causal sequence of n sees in the mean, window of them at most; 0 is no window.
func seen(n, window int) int {
	if window > 0 && window < n/2 {
		return window
	}
	return n / 2
}

// Branch is a part in a layer, with its norms. An empty name is not a norm.
type Branch struct {
	Name   string // of the part's parameters, below the layer's
	Part   Part
	Before string // name of the norm of what the part reads
	After  string // name of the norm of what the part gives, before it is added
}

// Layer is one layer of a transformer: branches that are added to the residual stream one after another. With
// Abreast all read the layer's input, normed as Before of the first says or their own, and their sum is added.
type Layer struct {
	Hidden   int
	Norm     Norm
	Branches []Branch
	Residual float64 // factor on what a branch gives; 0 is 1
	Abreast  bool
}

// Record is the layer called name on x [t hidden].
func (l Layer) Record(r *Rec, name string, x *grad.Value) *grad.Value {
	if l.Abreast {
		return l.abreast(r, name, x)
	}
	for _, b := range l.Branches {
		h := x
		if b.Before != "" {
			h = l.Norm.Record(r, name+"."+b.Before, h, l.Hidden)
		}
		x = r.T.Place("residual", r.T.Add(x, l.branch(r, name, b, h)))
	}
	return x
}

// branch is what a branch gives for rows h.
func (l Layer) branch(r *Rec, name string, b Branch, h *grad.Value) *grad.Value {
	h = b.Part.Record(r, name+"."+b.Name, h)
	if b.After != "" { // a norm is not linear: its sums over ranks end here
		h = l.Norm.Record(r, name+"."+b.After, r.T.Place("residual", h), l.Hidden)
	}
	if l.Residual != 0 && l.Residual != 1 {
		h = r.T.Scale(h, l.Residual)
	}
	return h
}

// abreast is Record where all branches read the same: what they give is summed over ranks once.
func (l Layer) abreast(r *Rec, name string, x *grad.Value) *grad.Value {
	h := x
	if before := l.Branches[0].Before; before != "" {
		h = l.Norm.Record(r, name+"."+before, h, l.Hidden)
	}
	var sum *grad.Value
	for i, b := range l.Branches {
		own := h
		if i > 0 && b.Before != "" {
			own = l.Norm.Record(r, name+"."+b.Before, x, l.Hidden)
		}
		if given := l.branch(r, name, b, own); sum == nil {
			sum = given
		} else {
			sum = r.T.Add(sum, given)
		}
	}
	return r.T.Place("residual", r.T.Add(x, sum))
}

// Size is the work of a token, without that with other tokens.
func (l Layer) Size() (n int) {
	for _, b := range l.Branches {
		n += b.Part.Size()
	}
	return n
}

// PairWork is the work of a token with others of a sequence of n tokens.
func (l Layer) PairWork(n int) (work int) {
	for _, b := range l.Branches {
		if p, ok := b.Part.(Pairing); ok {
			work += p.PairWork(n)
		}
	}
	return work
}
