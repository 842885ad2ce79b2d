package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Param declares a parameter. It is sharded on the axis TP along a tensor axis in units (a head's width), or
// replicated when axis < 0 or the units do not divide; decay says whether weight decay applies. The second
// call with a name returns the same value.
func (t *Tape) Param(name string, shape []int, axis, unit int, decay bool) *Value {
	return t.ParamOn(name, shape, decay, Cut{Mesh: TP, Axis: axis, Unit: unit})
}

// Cut says that a mesh axis shards a parameter along a tensor axis, in units that stay whole; Axis < 0 is
// none. Where the units do not divide, the parameter is replicated over the mesh axis.
type Cut struct {
	Mesh string
	Axis int
	Unit int
	// Copies are how many of the rows are there beyond one an expert, of a parameter whose rows are experts.
	Copies int
}

// Logical is the parameter as files have it: with one row an expert, however many copies of experts lie
// beside them.
func (p *Param) Logical() *Param {
	if p.Copies == 0 {
		return p
	}
	q := *p
	q.Shape = slices.Clone(p.Shape)
	q.Shape[0] -= p.Copies
	q.Copies = 0
	return &q
}

// ParamOn declares a parameter that is sharded by several mesh axes of one fold and replicated over the
// fold's others.
func (t *Tape) ParamOn(name string, shape []int, decay bool, cuts ...Cut) *Value {
	var p Place
	fold, size := 0, append([]int(nil), shape...)
	for _, c := range cuts {
		m := t.Axis(c.Mesh)
		if m < 0 || t.Mesh[m].Size == 1 {
			continue
		}
		fold = t.Mesh[m].Fold
		if c.Axis >= 0 && size[c.Axis]/c.Unit%t.Mesh[m].Size == 0 {
			p[m] = Part{Sharded, int8(c.Axis)}
			size[c.Axis] /= t.Mesh[m].Size
		}
	}
	v := t.param(name, shape, p, fold, decay)
	of := t.params[t.Full(name)]
	for _, c := range cuts {
		if c.Mesh == EP && c.Axis == 0 {
			of.Experts, of.Copies = true, c.Copies
		}
	}
	return v
}

// Table declares the weights of a vocabulary [v d], sharded over its rows on the axis TP; where they do not
// divide, the last ranks hold rows of padding, which are zero and belong to no token.
func (t *Tape) Table(name string, v, d int) *Value {
	var p Place
	if m := t.Axis(TP); m >= 0 && t.Mesh[m].Size > 1 {
		p[m] = Part{Sharded, 0}
	}
	return t.param(name, []int{v, d}, p, 0, true)
}

// PackedParam declares a matrix [n k] that does not learn and lies in memory in few bits. Its rows are sharded on the
// axis TP in units, whatever layer it is of: a row's words are not cut.
func (t *Tape) PackedParam(name string, shape []int, unit int, p kernels.Packing) *Value {
	if q := t.params[t.Full(name)]; q != nil {
		return t.use(q)
	}
	_, words := p.Words(shape[1])
	var place Place
	if m := t.Axis(TP); m >= 0 && t.Mesh[m].Size > 1 && shape[0]/unit%t.Mesh[m].Size == 0 {
		place[m] = Part{Sharded, 0}
	}
	v := t.paramOf(name, tensor.I32, []int{shape[0], words}, place, 0, false)
	q := t.params[t.Full(name)]
	q.Shape, q.Packed, q.Frozen = shape, p, true
	q.Local = local(t.Mesh, shape, q.Place)
	q.Value.Need, v.Need = false, false
	return v
}

func (t *Tape) param(name string, shape []int, place Place, fold int, decay bool) *Value {
	return t.paramOf(name, t.DType, shape, place, fold, decay)
}

// Bias declares numbers [n] that are float32 whatever the block's dtype, and that no gradient of the loss
// reaches: those that experts are chosen by. A step other than 0 moves them by the sign of what their
// operation counts (arXiv:2408.15664).
func (t *Tape) Bias(name string, n int, step float64) *Value {
	v := t.paramOf(name, tensor.F32, []int{n}, Place{}, 0, false)
	p := t.params[t.Full(name)]
	p.Fixed, p.Rule = true, Rule{Op: kernels.SignStep, Attr: kernels.Attr{F: [2]float64{step}}}
	if step == 0 {
		p.Rule = Rule{}
		p.Frozen = true
		p.Value.Need, v.Need = false, false
	}
	return v
}

// choice declares what is known of the errors of products with a weight, and whether they are of operands of
// few bits: kernels.ChoiceLen numbers beside it, on the axes of its mesh. Nil is a weight of which nothing
// is known.
func (t *Tape) choice(w *Value) *Value {
	of := t.leaf(w)
	if !t.Watch.On() || of == nil || t.still || t.Frozen != nil && t.Frozen(of.Name) {
		return nil
	}
	name := of.Name[len(t.prefix):] + ChoiceSuffix
	v := t.paramOf(name, tensor.F32, []int{1, kernels.ChoiceLen}, Place{}, of.Fold, false)
	p := t.params[t.Full(name)]
	p.Fixed, p.Rule = true, Rule{Op: kernels.LowChoice, Attr: t.Watch.Attr()}
	return v
}

// scales declares the greatest numbers that delayed scales of products with a weight follow from, which lie
// on every rank of its mesh. Nil is a weight that keeps none: one that does not learn, whose scales are of
// now.
func (t *Tape) scales(w *Value) *Value {
	of := t.leaf(w)
	if t.History == 0 || of == nil || t.still || t.Frozen != nil && t.Frozen(of.Name) {
		return nil
	}
	p := t.declare(of.Name[len(t.prefix):]+ScalesSuffix, tensor.F32, []int{1, kernels.DelayedLen(t.History)},
		Place{},
		of.Fold, false)
	p.Fixed, p.Largest, p.Rule = true, true, Rule{Op: kernels.DelayedScales}
	return t.use(p)
}

// ScalesSuffix ends the names of delayed scales behind those of weights.
const ScalesSuffix = ".scales"

// state is the choice or the delayed scales of products with a weight in a precision; nil for none.
func (t *Tape) state(w *Value, precision int) *Value {
	if kernels.Precisions[precision].Delayed {
		return t.scales(w)
	}
	return t.choice(w)
}

// ChoiceSuffix ends the names of choices behind those of weights.
const ChoiceSuffix = ".low"

// IsState reports whether a parameter is state of a run and no part of a model: a choice, delayed scales, or
// the greatest scores of attention.
func (p *Param) IsState() bool {
	return p.IsChoice() || p.IsPeak() || p.Rule.Op == kernels.DelayedScales
}

// IsChoice reports whether a parameter is a choice.
func (p *Param) IsChoice() bool { return p.Rule.Op == kernels.LowChoice }

// paramOf is the value of a parameter, made at its first use. Later uses take the same one, so that
// their gradients add up, as for tied embeddings.
func (t *Tape) paramOf(name string, dtype tensor.DType, shape []int, place Place, fold int,
	decay bool) *Value {
	return t.use(t.declare(name, dtype, shape, place, fold, decay))
}

// declare is a parameter, made at its first use.
func (t *Tape) declare(name string, dtype tensor.DType, shape []int, place Place, fold int,
	decay bool) *Param {
	name = t.Full(name)
	if p := t.params[name]; p != nil {
		return p
	}
	p := &Param{Name: name, Shape: shape, Place: place, Grad: place, Fold: fold, Frozen: t.NoGrad ||
		t.still ||
		t.Frozen != nil && t.Frozen(name), Fixed: t.still, Decay: decay,
		Block: t.block}
	block := t.block
	// The value belongs to no block: recomputing a block must not make it again.
	t.block = -1
	p.Value = t.one(opParam, kernels.Attr{Name: name}, dtype, shape, p.Place)
	t.block = block
	p.Value.Name, p.Value.Need, p.Value.Weight = name, !p.Frozen, true
	p.Local = local(t.Mesh, shape, p.Place)
	t.params[name] = p
	t.order = append(t.order, p)
	return p
}

// Still makes the parameters that are declared until the returned function is called such as no gradient of
// the loss reaches.
func (t *Tape) Still() (end func()) {
	t.still = true
	return func() { t.still = false }
}

// Within puts a beginning before the names of parameters that are declared until the returned function is
// called: of one of several models of a kind that lie in one.
func (t *Tape) Within(prefix string) (end func()) {
	before := t.prefix
	t.prefix += prefix
	return func() { t.prefix = before }
}

// Full is the whole name of a parameter that would be declared now, or of a module.
func (t *Tape) Full(name string) string { return t.prefix + name }

// use returns the value to compute with: gathered over the axes marked Zero when parameters are sharded
// there.
func (t *Tape) use(p *Param) *Value {
	axes := t.ZeroAxes(p.Fold)
	if !t.ShardParams || len(axes) == 0 || p.Largest {
		return p.Value
	}
	key := convKey{p.Value, p.Value.Place, Phase(16 + t.block)} // one gather a block
	if v := t.cache[key]; v != nil {
		return v
	}
	v := t.one(opUnsh, kernels.Attr{Name: p.Name}, p.Value.DType, p.Shape, p.Place, p.Value)
	v.Name, v.Need, v.Weight = p.Name, p.Value.Need, true
	v.Node.Axes = axes
	t.cache[key] = v
	return v
}
