package texts

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/stages/block"
)

// activations are transformers' names of ACT2FN.
var activations = map[string]int{"relu": kernels.ReLU, "gelu": kernels.GELU, "gelu_new": kernels.GELUTanh,
	"gelu_pytorch_tanh": kernels.GELUTanh, "quick_gelu": kernels.QuickGELU, "silu": kernels.SiLU,
	"swish": kernels.SiLU, "tanh": kernels.Tanh}

// heads is attention of a caption's tokens with each other.
type heads struct {
	width, n, dim int
	bias          bool      // of the projections
	names         [4]string // of query, key, value and output
	// attend gives [rows n dim] of queries, keys and values of that shape
	attend func(s scope, q, k, v *grad.Value) *grad.Value
}

// record is the attention called name on rows h [rows width].
func (a heads) record(s scope, name string, h *grad.Value) *grad.Value {
	project := func(i int) *grad.Value {
		x := s.Linear(s.of(name+"."+a.names[i]), h, a.n*a.dim, a.width, block.LinearOpts{Bias: a.bias, Unit: a.dim})
		return s.T.Heads(x, a.dim)
	}
	o := a.attend(s, project(0), project(1), project(2))
	return s.Linear(s.of(name+"."+a.names[3]), s.T.Flat(o), a.width, a.n*a.dim,
		block.LinearOpts{Bias: a.bias, Row: true, Unit: a.dim})
}
