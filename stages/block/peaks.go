package block

import "github.com/lfactor/lfactor/kernels/grad"

// Peaks says that the greatest scores of attention are kept, and that queries' and keys' projections shrink
// behind a step in which they were above Limit (arXiv:2507.20534, QK-clip): queries by Power of it, keys by
// the rest. The zero value keeps none; Limit 0 shrinks nothing.
type Peaks struct {
	Keep         bool
	Limit, Power float64
}

// Peaked is a kind of attention whose scores can be kept.
type Peaked interface {
	// NoPeaks says why they cannot, "" where they can.
	NoPeaks() string
}

// NoPeaks implements Peaked.
func (a Attn) NoPeaks() string {
	switch {
	case a.QKNorm || a.QKWhole:
		return "its queries and keys are normed, which bounds scores whatever their projections are"
	case a.Cap > 0:
		return "its scores have a soft cap"
	case a.Sinks:
		return "its softmax has sinks"
	case a.Sees != nil || a.Alibi.Slopes != nil:
		return "its queries do not see all that comes before them"
	}
	return ""
}

// NoPeaks implements Peaked.
func (a Latent) NoPeaks() string {
	if a.Index.Top > 0 {
		return "its queries read the keys that an indexer picks"
	}
	return ""
}

// peaks is the name by which greatest scores are kept, with what shrinks by them: weights and biases of
// queries and keys, by the rows of a key head and of the queries that read it.
func (a Attn) peaks(r *Rec, name string) string {
	if !r.Peaks.Keep || r.T.NoGrad || a.NoPeaks() != "" {
		return ""
	}
	each := a.Heads / a.KV
	for _, of := range []string{".weight", ".bias"} {
		r.shrinks(name, ".q_proj"+of, grad.Peak{Rows: each * a.HeadDim, Heads: each, Power: r.Peaks.Power})
		r.shrinks(name, ".k_proj"+of, grad.Peak{Rows: a.HeadDim, Heads: each, Power: 1 - r.Peaks.Power})
	}
	return name
}

// peaks is that of latent attention: what turns of a head's key is the same for all heads, so that queries
// alone shrink there.
func (a Latent) peaks(r *Rec, name string) string {
	if !r.Peaks.Keep || r.T.NoGrad {
		return ""
	}
	q := ".q_proj.weight"
	if a.QRank > 0 {
		q = ".q_b_proj.weight"
	}
	r.shrinks(name, q, grad.Peak{Rows: a.Turning + a.Still, Whole: a.Turning, Heads: 1, Power: r.Peaks.Power})
	r.shrinks(name, ".k_b_proj.weight", grad.Peak{Rows: a.Still, Heads: 1, Power: 1 - r.Peaks.Power})
	return name
}

func (r *Rec) shrinks(module, param string, p grad.Peak) {
	if p.Of, p.Limit = module, r.Peaks.Limit; p.Limit > 0 {
		r.T.Shrinks(module+param, p)
	}
}
