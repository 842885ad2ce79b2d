package grad

import (
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Suffixes of what a module takes and gives, behind its name: that of its weight less ".weight".
const (
	SeenInput  = ".input"
	SeenOutput = ".output"
	SeenGrad   = ".output_grad" // the gradient of its output
)

// Module is the name of the module that a weight is of.
func Module(weight string) string { return strings.TrimSuffix(weight, ".weight") }

// seen shows what the module of a weight takes and gives: operand and result of a forward call that reads
// it, and the gradient of its result, of the calls that make the operand's and the weight's (the same
// tensor, shown twice). What is computed again is not shown.
func (r *Runner) seen(f *Frame, n *Node, c *kernels.Call) {
	if n.Clone || len(c.Out) == 0 || c.Out[0] == nil {
		return
	}
	module, input := "", (*tensor.Tensor)(nil)
	for i, v := range n.In {
		if v == nil || i >= len(c.In) {
			continue
		}
		if name, is := v.parameter(); !is && input == nil {
			input = c.In[i]
		} else if is && module == "" && strings.HasSuffix(name, ".weight") {
			module = Module(name)
		}
	}
	switch n.Op.Kernel {
	case kernels.LinearDW, kernels.LowLinearDW, kernels.GroupedLinearDW:
		if n.Acc > 0 {
			module = Module(f.Trace.Params[n.Acc-1].Name)
		}
		fallthrough
	case kernels.LinearDX, kernels.LowLinearDX, kernels.GroupedLinearDX:
		if module != "" {
			r.Seen(module+SeenGrad, c.In[0])
		}
		return
	}
	if n.Phase != F || module == "" {
		return
	}
	if input != nil {
		r.Seen(module+SeenInput, input)
	}
	switch n.Op.Kernel {
	case kernels.LinearLSE, kernels.LinearCE,
		kernels.LinearCEBwd: // the loss never has the logits of all tokens
	default:
		r.Seen(module+SeenOutput, c.Out[0])
	}
}

// parameter follows a value to the parameter that it is, gathered and laid out for its reader.
func (v *Value) parameter() (name string, is bool) {
	for v.Node != nil {
		switch v.Node.Op.Role {
		case param:
			return v.Name, true
		case unshard, convert, alias, cutOut:
			v = v.Node.In[0]
		default:
			return "", false
		}
	}
	return "", false
}
