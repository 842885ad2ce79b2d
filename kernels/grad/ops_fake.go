package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

var opFake, opFakeDW *Op

func init() {
	opFakeDW = &Op{Name: "fake_quant_dw", Kernel: kernels.FakeQuantDW}
	opFake = &Op{Name: "fake_quant", Kernel: kernels.FakeQuant, Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value {
			if !leg(0) {
				return []*Value{nil}
			}
			d, at := dy[0], dy[0].Place
			for m := range t.Mesh { // terms of a sum are passed on alike
				if at[m].Kind == Partial {
					at[m] = Part{}
				}
			}
			return []*Value{t.one(opFakeDW, n.Attr, tensor.F32, d.Shape, d.Place, d, t.to(n.In[0], at))}
		}}
}

// Faked is a weight [n k] as products see it where it learns to be rounded (kernels.Fake): the gradient passes to the
// weight as if nothing were. The zero value is the weight. Groups are counted from the beginning of what a member
// of a mesh has.
func (t *Tape) Faked(w *Value, f kernels.Fake) *Value {
	if f.Bits == 0 {
		return w
	}
	key := convKey{w, w.Place, Phase(16 + t.block)} // once a block
	if v := t.cache[key]; v != nil {
		return v
	}
	v := t.one(opFake, f.Attr(), w.DType, w.Shape, w.Place, w)
	v.Name, v.Need, v.Weight = w.Name, w.Need, true
	t.cache[key] = v
	return v
}
