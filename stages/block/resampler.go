package block

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Resampler joins neighbouring patches to one feature, and the features of two frames of a video to one: an
// MLP with a norm behind it for either, a linear layer to the decoder's width and an RMS norm (ERNIE 4.5).
type Resampler struct {
	Tower    *Tower
	Out      int
	Eps, RMS float64 // terms under the roots of the MLPs' norms and of the last one
}

// Forward gives features [p/join out] of rows x [p hidden]. Data: vis.first and vis.second [p/join], the joined patches
// of both frames of a feature, -1 for rows without one; vis.restore [p/join] where the tower worked in window order.
func (m *Resampler) Forward(r *Rec, name string, x *grad.Value) *grad.Value {
	t, wide := r.T, m.Tower.Hidden*m.Tower.Join
	n := r.Shape.Dim(Patches) / m.Tower.Join
	x = m.mlp(r, name+".spatial_linear", t.Join(x, m.Tower.Join), wide, wide)
	if m.Tower.Ordered {
		x = t.Take(x, t.Data("vis.restore", tensor.I32, n))
	}
	both := t.Concat(1, t.Take(x, t.Data("vis.first", tensor.I32, n)), t.Take(x, t.Data("vis.second", tensor.I32, n)))
	x = m.mlp(r, name+".temporal_linear", both, wide, 2*wide)
	y := t.Place("", r.Linear(name+".mlp", x, m.Out, wide, LinearOpts{Bias: true, Rep: true}))
	return r.Norm(name+".after_norm", y, m.Out, m.RMS)
}

// mlp takes rows of in columns to rows of out: two layers with GELU between, and a norm.
func (m *Resampler) mlp(r *Rec, name string, x *grad.Value, out, in int) *grad.Value {
	h := r.T.Act(r.Linear(name+".fc1", x, out, in, LinearOpts{Bias: true}), kernels.GELU)
	y := r.T.Place("", r.Linear(name+".fc2", h, out, out, LinearOpts{Bias: true, Row: true}))
	return r.LayerNorm(name+".ln", y, out, m.Eps)
}
