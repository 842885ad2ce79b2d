package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// fuses lists the weight-gradient kernels that can add straight into a parameter's gradient.
var fuses = map[kernels.Op]bool{kernels.LinearDW: true, kernels.ColSum: true, kernels.RMSNormDW: true,
	kernels.EmbedDW: true, kernels.LinearCEDW: true, kernels.CausalConvDW: true}

// backward records the gradient of the loss and of the output ports.
func (t *Tape) backward() {
	fwd := t.nodes
	exports := map[*Value]string{}
	for _, n := range fwd {
		if n.Op.Role == export && n.In[0].Need {
			exports[n.In[0]] = n.Attr.Name
		}
	}
	t.seeds()
	for i := len(fwd) - 1; i >= 0; i-- {
		n := fwd[i]
		if i+1 < len(fwd) && fwd[i+1].Block != n.Block {
			t.flush()
		}
		t.block, t.phase = n.Block, I
		for _, o := range n.Out {
			if name, ok := exports[o]; ok {
				t.addCt(o, t.one(opExportGrad, kernels.Attr{Name: name}, o.DType, o.Shape, o.Place.dual()))
			}
		}
		t.reverse(n)
	}
	t.flush()
}

// seeds starts the backward pass: the loss has the gradient that the runner was given, and outputs
// to later stages have what these send back.
func (t *Tape) seeds() {
	t.phase, t.block = I, -1
	if t.loss != nil && t.loss.Need {
		t.cts[t.loss] = []*Value{t.one(opSeed, kernels.Attr{}, tensor.F32, t.loss.Shape, Place{})}
	}
	for _, p := range t.outs {
		if p.Grad {
			t.addCt(p.Value, t.one(opRecvG, kernels.Attr{Name: p.Name}, p.Value.DType, p.Value.Shape,
				p.Value.Place.dual()))
		}
	}
}

func (t *Tape) addCt(v, c *Value) { t.cts[v] = append(t.cts[v], c) }

// reverse emits the gradient of one forward node.
func (t *Tape) reverse(n *Node) {
	if len(n.Out) == 0 || !n.Out[0].Need || n.Op.Role == param {
		return
	}
	if r := n.Op.Role; r == convert || r == cutOut { // the identity on the logical tensor
		if p := t.leaf(n.In[0]); p != nil {
			t.gathered(p, n)
			return
		}
		t.cts[n.In[0]] = append(t.cts[n.In[0]], t.cts[n.Out[0]]...)
		return
	}
	dys, have := make([]*Value, len(n.Out)), false
	for j, o := range n.Out {
		dys[j] = t.cotangent(o)
		have = have || dys[j] != nil
	}
	if !have {
		switch n.Op.Role {
		case importing: // the exporter waits for every import, also one without a gradient
			t.emit(opImportGrad, n.Attr, nil)
		case recv: // and so does the giver of a port that nothing here learns by
			z := t.one(opScale, kernels.Attr{}, n.Out[0].DType, n.Out[0].Shape, n.Out[0].Place, n.Out[0])
			t.emit(opSendG, n.Attr, []*Value{t.to(z, n.Out[0].Place.dual())})
		}
		return
	}
	switch n.Op.Role {
	case importing:
		t.emit(opImportGrad, n.Attr, dys)
	case recv:
		t.emit(opSendG, n.Attr, dys)
	case alias:
		d, place := dys[0], dys[0].Place
		if n.In[0].Place != n.Out[0].Place { // the same parts are of other axes there
			d, place = t.to(d, n.Out[0].Place.dual()), n.In[0].Place.dual()
		}
		c := t.one(opAlias, n.Attr, d.DType, n.In[0].Shape, place, d)
		if p := t.leaf(n.In[0]); p != nil {
			t.phase = W
			t.gradient(p, c)
			return
		}
		t.addCt(n.In[0], c)
	default:
		t.legs(n, dys)
	}
}

// gathered adds cotangents of what each member has cut from a parameter of which it has more: they are
// brought together, since the parameter's gradient lies as it does.
func (t *Tape) gathered(p *Param, n *Node) {
	t.phase = W
	for _, c := range t.cts[n.Out[0]] {
		for m := len(t.Mesh) - 1; m >= 0; m-- { // as cutHeads has cut them
			if t.Mesh[m].Context && c.Place[m] == (Part{Sharded, 0}) && n.In[0].Place[m] == (Part{}) {
				c = t.along(opConv, c, m, Part{})
			}
		}
		want := c.Place
		for m := range want {
			if want[m].Kind == Sharded || n.In[0].Place[m].Kind == Sharded {
				want[m] = n.In[0].Place[m]
			}
		}
		t.gradient(p, t.to(c, want))
	}
}

// legs asks the operation of n for the gradients of its inputs, given those of its outputs, and
// passes each on: to the parameter that it belongs to, or to the value's sum. leg tells whether an
// input is wanted, and sets the phase: gradients of weights may wait for W.
func (t *Tape) legs(n *Node, dys []*Value) {
	leg := func(i int) bool {
		t.phase = I
		if n.In[i].Weight {
			t.phase = W
		}
		return n.In[i].Need
	}
	for k, d := range n.Op.VJP(t, n, dys, leg) {
		in := n.In[k]
		switch {
		case d == nil || !in.Need:
		case t.leaf(in) != nil:
			if t.phase = W; d.Node.Op == opCEDW { // made in I, it is added up there: nobody holds it until W
				t.phase = d.Node.Phase
			}
			t.gradient(t.leaf(in), d)
		default:
			t.addCt(in, d)
		}
	}
}

// leaf is the parameter that v is, or is gathered or cut from, else nil.
func (t *Tape) leaf(v *Value) *Param {
	for v.Node.Op.Role == unshard || v.Node.Op == opCoded {
		v = v.Node.In[0]
	}
	if v.Node.Op.Role == param {
		return t.params[v.Node.Attr.Name]
	}
	return nil
}

// gradient adds term d to the gradient of p: by the kernel itself where it can, reduced to a shard where the
// plan says so.
func (t *Tape) gradient(p *Param, d *Value) {
	if p.Largest {
		if p.graded && d.Place != p.Grad {
			panic(fmt.Sprintf("grad: the gradient of %s has terms placed %v and %v", p.Name, p.Grad, d.Place))
		}
		p.Grad, p.graded = d.Place, true
		t.emit(opMost, kernels.Attr{Name: p.Name}, []*Value{d}).Acc = t.index(p) + 1
		return
	}
	if !p.graded {
		p.Grad, p.graded = d.Place, true // partial terms stay partial; they are reduced once a step
	}
	if d.Place != p.Grad {
		d = t.sharedOut(d, p.Grad)
	}
	if d.Place != p.Grad {
		d = t.to(d, p.Value.Place)
		if p.Grad != p.Place {
			panic(fmt.Sprintf("grad: the gradient of %s has terms placed %v and %v", p.Name, p.Grad, d.Place))
		}
	}
	switch {
	case t.ShardGrads && len(t.ZeroAxes(p.Fold)) > 0:
		if d.DType.Size() < tensor.F32.Size() { // of rows by index: it is summed as gradients are kept
			d = t.asType(d, tensor.F32)
		}
		wholes := 1
		for _, m := range t.ZeroAxes(p.Fold) { // members that share tokens, if each has the whole gradient
			if !t.Mesh[m].Data && d.Place[m].Kind != Partial {
				wholes *= t.Mesh[m].Size
			}
		}
		at := kernels.Attr{Name: p.Name}
		switch {
		case wholes > 1 && t.InFixedPoint(p): // a half would be rounded, and the sum divides
			at.I[0] = wholes
		case wholes > 1:
			d = t.Scale(d, 1/float64(wholes))
		}
		t.late = append(t.late, &Node{Op: opReduce, In: []*Value{d}, Attr: at,
			Phase: t.phase, Block: t.block, Axes: t.ZeroAxes(p.Fold), Acc: t.index(p) + 1})
	case d.Node.Op.Role == compute && fuses[d.Node.Op.Kernel]:
		d.Node.Acc = t.index(p) + 1
	default:
		t.emit(opAcc, kernels.Attr{Name: p.Name}, []*Value{d}).Acc = t.index(p) + 1
	}
}

// sharedOut makes a term that every member of some axes has in whole one of the partial terms there, so that
// it joins those of a use of the parameter on rows that are shared out: each member counts its share of it.
// Where the terms so far are whole, it is summed.
func (t *Tape) sharedOut(d *Value, as Place) *Value {
	whole := d.Place
	for m := range t.Mesh {
		if whole[m].Kind == Partial && as[m].Kind != Partial {
			whole[m] = as[m]
		}
	}
	d = t.to(d, whole)
	place, by := d.Place, 1.0
	for m := range t.Mesh {
		if as[m].Kind == Partial && place[m].Kind == Replicated {
			place[m], by = Part{Kind: Partial}, by/float64(t.Mesh[m].Size)
		}
	}
	if by == 1 {
		return d
	}
	return t.one(opScale, kernels.Attr{F: [2]float64{by}}, d.DType, d.Shape, place, d)
}

// overData marks what the optimizer step still has to sum: gradients over the data axes of their parameter's
// mesh, but for those over which each microbatch's gradients are reduced already.
func (t *Tape) overData() {
	for _, p := range t.order {
		for m, a := range t.Mesh {
			switch {
			case p.Frozen || a.Size == 1 || a.Fold != p.Fold:
			case t.ShardGrads && a.Zero && !p.Largest:
				if p.Grad[m].Kind == Partial {
					p.Grad[m] = Part{}
				}
			case a.Data:
				p.Grad[m] = Part{Kind: Partial}
			}
		}
	}
}

// flush emits the gradient reductions of a block together, so that they share one cut.
func (t *Tape) flush() {
	for _, n := range t.late {
		n.ID = len(t.nodes)
		t.nodes = append(t.nodes, n)
	}
	t.late = t.late[:0]
}

// index is the number of a parameter in the order in which parameters were first used.
func (t *Tape) index(p *Param) int {
	for i, q := range t.order {
		if p == q {
			return i
		}
	}
	panic("grad: parameter " + p.Name + " of another tape")
}

// withThin are terms of which those of thin products are added to the term behind them, that of the product
// beside it as a rule: an adapter's and its matrix'.
func (t *Tape) withThin(cs []*Value) (out []*Value) {
	for i := 0; i < len(cs); i++ {
		c := cs[i]
		if i+1 < len(cs) && c.Place == cs[i+1].Place && thin(c.Node, cs[i+1].Node) {
			i++
			c = t.one(opSum, kernels.Attr{}, c.DType, c.Shape, c.Place, cs[i], c)
		}
		out = append(out, c)
	}
	return out
}

// cotangent of v: terms of one placement are summed first, so that three partial terms cost one collective,
// then brought to the dual of v's placement.
func (t *Tape) cotangent(v *Value) *Value {
	t.phase = I
	if v.Weight {
		t.phase = W
	}
	var sums []*Value
next:
	for _, c := range t.withThin(t.cts[v]) {
		for i, s := range sums {
			if s.Place == c.Place {
				sums[i] = t.one(opSum, kernels.Attr{}, c.DType, v.Shape, c.Place, s, c)
				continue next
			}
		}
		sums = append(sums, c)
	}
	if len(sums) == 0 {
		return nil
	}
	want := t.wanted(v)
	acc := t.to(sums[0], want)
	for _, s := range sums[1:] {
		acc = t.one(opSum, kernels.Attr{}, acc.DType, v.Shape, acc.Place, acc, t.to(s, want))
	}
	return acc
}
