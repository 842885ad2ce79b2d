package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// port moves values between a frame and what lies outside it.
func (r *Runner) port(f *Frame, n *Node) {
	name := n.Attr.Name
	take := func(m map[string]*tensor.Tensor) {
		t := m[name]
		if t == nil {
			panic(fmt.Sprintf("grad: %s %s has not arrived", n.Op.Name, name))
		}
		delete(m, name)
		f.slots[n.Out[0].ID] = t
	}
	switch n.Op.Role {
	case data:
		take(f.data)
	case recv:
		take(f.in)
	case recvGrad:
		take(f.dout)
	case exportGrad:
		take(f.grads)
	case sendGrad:
		f.din[name] = r.operand(f, n, n.In[0]).Retain()
	case export:
		r.export(f, n)
	case importing:
		from := f.chunks[n.Attr.I[0]]
		f.slots[n.Out[0].ID] = from.exports[name].Retain()
	case importGrad:
		r.importGrad(f, n)
	default:
		panic("grad: no rule to run " + n.Op.Name)
	}
}

func (r *Runner) export(f *Frame, n *Node) {
	v := n.In[0]
	f.exports[n.Attr.Name] = r.operand(f, n, v).Retain()
	if v.Need {
		f.Pending += n.Attr.I[0]
	}
}

func (r *Runner) importGrad(f *Frame, n *Node) {
	from := f.chunks[n.Attr.I[0]]
	from.Pending--
	if len(n.In) == 0 {
		return
	}
	d := r.operand(f, n, n.In[0])
	if g := from.grads[n.Attr.Name]; g != nil {
		r.run(kernels.Sum, kernels.Attr{}, []*tensor.Tensor{g, d}, g)
		return
	}
	g := r.allocShape(n.In[0].Name, d.DType, d.Shape)
	r.run(kernels.Cast, kernels.Attr{}, []*tensor.Tensor{d}, g)
	from.grads[n.Attr.Name] = g
}
