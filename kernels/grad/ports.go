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

// Output is an activation sent to other stages.
func (t *Tape) Output(port string, v *Value) {
	v = t.to(v, t.portPlace(port, v.Shape[0]))
	fan := 1
	if t.Consumers != nil {
		fan = t.Consumers(port)
	}
	t.outs = append(t.outs, &Port{Name: port, Value: v, Grad: v.Need && !t.NoGrad, Fan: fan})
}

// portPlace is how the value of a port lies on its stage: whole where the port says so, else by rows.
func (t *Tape) portPlace(port string, rows int) Place {
	if t.Whole != nil && t.Whole(port) {
		return Place{}
	}
	if t.Lines != nil && t.Lines(port) > 0 {
		return t.ofLines(t.Lines(port))
	}
	return t.rows(rows, nil)
}

// ofLines is how rows of so many lines lie, of which members of context parallelism have whole ones where they can.
func (t *Tape) ofLines(n int) (p Place) {
	for m, a := range t.Mesh {
		if a.Context && a.Size > 1 && n%a.Size == 0 {
			p[m], n = Part{Sharded, 0}, n/a.Size
		}
	}
	return p
}

// Place gives a named activation the placement the plan chose for it; "residual" is the stream between blocks.
func (t *Tape) Place(name string, v *Value) *Value {
	if name == "residual" {
		return t.to(v, t.rows(v.Shape[0], nil))
	}
	return t.to(v, Place{})
}
