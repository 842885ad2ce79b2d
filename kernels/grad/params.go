package grad

import (
	"hash/fnv"
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

// Logical is the parameter as files have it: with one row an expert, however many copies of experts lie beside them.
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

// ParamOn declares a parameter that is sharded by several mesh axes of one fold and replicated over the fold's others.
func (t *Tape) ParamOn(name string, shape []int, decay bool, cuts ...Cut) *Value {
	p, fold := t.placed(shape, cuts)
	v := t.marked(t.param(name, shape, p, fold, decay), name, cuts)
	t.params[t.Full(name)].Parts = t.partsOf(t.Full(name), shape, cuts)
	return v
}

// Taps declares the taps [channels taps] of a depthwise convolution, cut by channels in units of so many.
func (t *Tape) Taps(name string, channels, taps, unit int) *Value {
	v := t.Param(name, []int{channels, taps}, 0, unit, true)
	t.params[t.Full(name)].Taps = true
	return v
}

// placed is where cuts put a parameter, and the fold of their axes.
func (t *Tape) placed(shape []int, cuts []Cut) (p Place, fold int) {
	size := append([]int(nil), shape...)
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
	return p, fold
}

// marked says of a parameter that its rows are experts.
func (t *Tape) marked(v *Value, name string, cuts []Cut) *Value {
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
	return t.PackedOn(name, shape, p, Cut{Mesh: TP, Axis: 0, Unit: unit})
}

// PackedOn declares a matrix, or one for each of some experts [g n k], that does not learn and lies in memory in few
// bits. No cut is along the last axis.
func (t *Tape) PackedOn(name string, shape []int, p kernels.Packing, cuts ...Cut) *Value {
	if q := t.params[t.Full(name)]; q != nil {
		return t.use(q)
	}
	place, fold := t.placed(shape, cuts)
	v := t.marked(t.paramOf(name, tensor.I32, inWords(shape, p), place, fold, false), name, cuts)
	q := t.params[t.Full(name)]
	q.Shape, q.Packed, q.Frozen = shape, p, true
	q.Local = local(t.Mesh, shape, q.Place)
	q.Value.Need, v.Need = false, false
	return v
}

// inWords is the shape of numbers as their words lie in memory.
func inWords(shape []int, p kernels.Packing) []int {
	out := slices.Clone(shape)
	_, out[len(out)-1] = p.Words(shape[len(shape)-1])
	return out
}

// Columns is the numbers of a row of a matrix, or of each of several.
func (p *Param) Columns() int { return p.Shape[len(p.Shape)-1] }

// Words is the shape of a parameter as it lies in memory, which differs for one in few bits.
func (p *Param) Words() []int {
	if p.Packed.Form == 0 {
		return p.Shape
	}
	return inWords(p.Shape, p.Packed)
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

// choice declares what is known of the errors of products with a weight, and whether they are of operands of few bits:
// kernels.ChoiceLen numbers beside it, on the axes of its mesh. Nil is a weight of which nothing is known.
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

// scales declares the greatest numbers that delayed scales of products with a weight follow from, which lie on every
// rank of its mesh. Nil is a weight that keeps none: one that does not learn, whose scales are of now.
func (t *Tape) scales(w *Value) *Value {
	of := t.leaf(w)
	if t.History == 0 || of == nil || t.still || t.Frozen != nil && t.Frozen(of.Name) {
		return nil
	}
	p := t.declare(of.Name[len(t.prefix):]+ScalesSuffix, tensor.F32, []int{1, kernels.DelayedLen(t.History)}, Place{},
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

// noisy appends what gradients of a precision that rounds them by chance are drawn by: a number of the microbatch.
func (t *Tape) noisy(precision int, in ...*Value) []*Value {
	if t.NoGrad || !kernels.Precisions[precision].Grad.Chance {
		return in
	}
	return append(in, t.Data(DrawOf, tensor.I64, 1))
}

// DrawOf is the data that noise is counted from, a number that names seed, step and microbatch.
const DrawOf = "draw"

// Site tells what is drawn for a parameter from what is for others, in every plan alike.
func Site(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() >> 1)
}

// site is that of a weight; 0 is one that is computed.
func (t *Tape) site(w *Value) int {
	if of := t.leaf(w); of != nil {
		return Site(of.Name)
	}
	return 0
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
func (t *Tape) paramOf(name string, dtype tensor.DType, shape []int, place Place, fold int, decay bool) *Value {
	return t.use(t.declare(name, dtype, shape, place, fold, decay))
}

// declare is a parameter, made at its first use.
func (t *Tape) declare(name string, dtype tensor.DType, shape []int, place Place, fold int, decay bool) *Param {
	name = t.Full(name)
	if p := t.params[name]; p != nil {
		return p
	}
	p := &Param{Name: name, Shape: shape, Place: place, Grad: place, Fold: fold, Frozen: t.NoGrad || t.still ||
		t.Frozen != nil && t.Frozen(name), Fixed: t.still, Decay: decay, Block: t.block}
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

// use returns the value to compute with: gathered over the axes marked Zero when parameters are sharded there.
func (t *Tape) use(p *Param) *Value {
	axes := t.ZeroAxes(p.Fold)
	if !t.ShardParams || len(axes) == 0 || p.Largest {
		return p.Value
	}
	key := convKey{p.Value, p.Value.Place, Phase(16 + t.block)} // one gather a block
	if v := t.cache[key]; v != nil {
		return v
	}
	v := t.one(opUnsh, kernels.Attr{Name: p.Name}, p.Value.DType, p.Value.Shape, p.Place, p.Value)
	v.Name, v.Need, v.Weight = p.Name, p.Value.Need, true
	v.Node.Axes = axes
	t.cache[key] = v
	return v
}
