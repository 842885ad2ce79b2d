package block

import (
	"math"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Indexer chooses the keys that latent attention reads (DeepSeek-V3.2-Exp's report, section 2.1): a few small
// heads with one key, whose scores count where they are positive.
type Indexer struct {
	Heads, Dim int
	Top        int  // keys of a query, 0 for an attention without an indexer
	Pairs      bool // neighbouring numbers turn together
	// Shared layers have no indexer: they read the keys that the last layer with one has chosen (arXiv:2603.12201).
	Shared bool
	// Kept says that layers behind this one read the keys that it chooses.
	Kept bool
}

// Indexing is how indexers are trained: by a loss that is apart from the model's, and reaches nothing else.
type Indexing struct {
	Scale float64 // factor on each layer's loss; 0 leaves indexers as they are
	// Dense is the stage before sparse attention: attention reads all keys, and indexers learn from all.
	Dense bool
}

// Trains reports whether indexers are trained.
func (x Indexing) Trains() bool { return x.Scale != 0 }

// size is the number of weights that a token passes, of layers of that width and latent queries.
func (x Indexer) size(hidden, rank int) int {
	if x.Top == 0 || x.Shared {
		return 0
	}
	return rank*x.Heads*x.Dim + hidden*(x.Dim+x.Heads)
}

// pairWork is the scores of all keys that a token of a sequence of n tokens could read.
func (x Indexer) pairWork(n int) int {
	if x.Top == 0 || x.Shared {
		return 0
	}
	return x.Heads * x.Dim * seen(n, 0)
}

// indexed is what an indexer makes of tokens.
type indexed struct {
	Indexer
	q, k, w *grad.Value
	see     *grad.Value
	mean    *grad.Value
}

func (x *indexed) scale() float64 { return 1 / math.Sqrt(float64(x.Heads*x.Dim)) }

// visible is which keys each query of the record sees, recorded once.
func (r *Rec) visible() (see, mean *grad.Value) {
	if r.see == nil {
		r.see, r.mean = r.T.VisibleKeys(r.Cu(), r.cuKeys(), r.Shape.Rows)
	}
	return r.see, r.mean
}

// record is the indexer called name, of normed rows h [t hidden] and the latent of queries [t rank]. No
// gradient leaves it, so its rows may be shared out as they need not be for others.
func (x Indexer) record(r *Rec, name string, h, latent *grad.Value, hidden, rank int) *indexed {
	t, whole := r.T, LinearOpts{Rep: true}
	if !r.Indexing.Trains() {
		defer t.Still()()
	}
	h, latent = t.SpreadRows(t.Detach(h)), t.SpreadRows(t.Detach(latent))
	cos, sin := r.angles(0)
	q := t.Heads(r.Linear(name+".wq_b", latent, x.Heads*x.Dim, rank, whole), x.Dim)
	k := r.LayerNorm(name+".k_norm", r.Linear(name+".wk", h, x.Dim, hidden, whole), x.Dim, 1e-6)
	k = t.Rope(t.Heads(k, x.Dim), cos, sin, x.Pairs)
	w := t.Linear32(h, t.Param(name+".weights_proj.weight", []int{x.Heads, hidden}, -1, 1, true), nil)
	out := &indexed{Indexer: x, q: t.Rope(q, cos, sin, x.Pairs), w: w, k: r.cache(name+".k", t.Carry(name+".k", k))}
	out.see, out.mean = r.visible()
	return out
}

// attendSparse is attention to the keys that an indexer chooses, or that it learns to choose.
func (a Latent) attendSparse(r *Rec, name string, h, latent, q, k, v *grad.Value) *grad.Value {
	t, train := r.T, r.Indexing
	k, v = r.withEarlier(name, k, v)
	var x *indexed
	if !a.Index.Shared {
		x = a.Index.record(r, name+".indexer", h, latent, a.Hidden, a.QRank)
	}
	dense := train.Dense && !t.NoGrad
	if x != nil && (!dense || a.Index.Kept) {
		r.Chosen = t.IndexTopK(x.q, x.k, x.w, x.see, x.Top, x.scale())
	}
	if x != nil && train.Trains() {
		a.indexLoss(r, x, q, k, dense)
	}
	if dense {
		return r.attendKeys(q, k, v, grad.AttentionConfig{Scale: a.Scale, Causal: true})
	}
	share := 1
	if a.absorbs(r, name) {
		share = a.Heads
	}
	return t.SparseAttention(q, k, v, r.Chosen, share, a.Scale)
}

// indexLoss adds the loss of a layer's indexer; an evaluation is of the model alone.
func (a Latent) indexLoss(r *Rec, x *indexed, q, k *grad.Value, dense bool) {
	if r.T.NoGrad {
		r.add(r.T.Const("no_loss", []float32{0})) // stages wait for one
		return
	}
	in := grad.Indexed{Q: x.q, K: x.k, W: x.w, AttnQ: q, AttnK: k, See: x.see, Mean: x.mean, Scale: x.scale(),
		AttnScale: a.Scale}
	if !dense {
		in.List = r.Chosen
	}
	// each chunk has the mean over its own queries
	r.add(r.T.Scale(r.T.IndexLoss(in), r.Indexing.Scale/float64(max(1, r.T.Chunks))))
}

// cuKeys are the borders of the keys of packed sequences: earlier chunks' and generated tokens' are part of them.
func (r *Rec) cuKeys() *grad.Value {
	if r.T.Chunks > 1 || r.Cached {
		return r.T.Data("cu_seqlens_k", tensor.I32, 2)
	}
	return r.Cu()
}
