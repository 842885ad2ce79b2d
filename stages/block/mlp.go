package block

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
)

// ReLU2 is the square of kernels.ReLU (arXiv:2109.08668), beside the activations of kernels.
const ReLU2 = -1

// act is an activation of MLPs.
func (r *Rec) act(x *grad.Value, kind int) *grad.Value {
	if kind == ReLU2 {
		x = r.T.Act(x, kernels.ReLU)
		return r.T.Mul(x, x)
	}
	return r.T.Act(x, kind)
}

// Gated is the MLP act(gate(h))·up(h) (arXiv:2002.05202).
type Gated struct {
	Hidden, Inter int
	Bias          bool
	Act           int // of kernels
}

// Size implements Part.
func (m Gated) Size() int { return 3 * m.Hidden * m.Inter }

// Record implements Part.
func (m Gated) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	in := LinearOpts{Bias: m.Bias}
	g := r.Linear(name+".gate_proj", h, m.Inter, m.Hidden, in)
	u := r.Linear(name+".up_proj", h, m.Inter, m.Hidden, in)
	var y *grad.Value
	if m.Act == kernels.SiLU {
		y = r.T.SwiGLU(g, u)
	} else {
		y = r.T.Mul(r.act(g, m.Act), u)
	}
	return r.Linear(name+".down_proj", y, m.Hidden, m.Inter, LinearOpts{Bias: m.Bias, Row: true})
}

// Plain is the MLP down(act(up(h))).
type Plain struct {
	Hidden, Inter int
	Bias          bool
	Act           int // of kernels
}

// Size implements Part.
func (m Plain) Size() int { return 2 * m.Hidden * m.Inter }

// Record implements Part.
func (m Plain) Record(r *Rec, name string, h *grad.Value) *grad.Value {
	u := r.Linear(name+".up_proj", h, m.Inter, m.Hidden, LinearOpts{Bias: m.Bias})
	return r.Linear(name+".down_proj", r.act(u, m.Act), m.Hidden, m.Inter, LinearOpts{Bias: m.Bias, Row: true})
}
