package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Phase is the part of a record's life in which a node runs.
// In the words of the field: tensor parallelism.
type Phase uint8

// Forward, input gradient, weight gradient; B is I and W in recorded order.
const (
	F Phase = iota
	I
	W
	B
)

// String is F, I, W or B.
func (p Phase) String() string { return "FIWB"[p : p+1] }

// Value is a logical (global) tensor of a trace.
type Value struct {
	ID       int
	Name     string // for messages
	Shape    []int  // global
	DType    tensor.DType
	Place    Place
	Need     bool // a trainable parameter or a wanted input lies behind it
	Weight   bool // depends on parameters only: its cotangent belongs to W
	Exported bool
	Kept     bool // never computed again
	Ragged   bool // data decides the number of rows: Shape and Local have the number under even sharing
	Node     *Node
	Const    *tensor.Tensor // the contents of a constant of the model
	Local    []int          // shape on one rank, set by Finish
	tensor   string         // what Options.Choose is asked by
	terms    []*Value       // that it is the sum of in the place of several ranks (Options.Sums)
}

// Node is one recorded operation.
type Node struct {
	ID      int
	Op      *Op
	In, Out []*Value // In[i] is nil for an absent optional operand
	Attr    kernels.Attr
	Phase   Phase
	Block   int
	// mesh axes of a communication or of a rank-dependent operation, outermost first; nil for none
	Axes  []int
	Clone bool    // a forward operation run again in the backward
	Then  []*Node // nodes that run as its epilogues
	// nothing but its epilogues, or those behind it, reads what it computes
	Passing bool
	sent    *Dispatched // of a dispatch or combine: where the rows went
	cut     *cutOf      // of borders and of attention over shared rows: which rows of the sequences
	// index+1 in Trace.Params of the gradient that the last output accumulates into; 0 for none
	Acc int
}

// role says what the runner does with a node.
type role uint8

const (
	compute    role = iota // one kernel call
	param                  // the parameter itself
	constant               // a constant of the model, part of the trace
	data                   // a tensor of the microbatch
	recv                   // an activation from another stage
	recvGrad               // a cotangent from the consumers of an output port
	sendGrad               // the cotangent of an input port
	seed                   // the cotangent of the loss
	alias                  // the same storage in another shape
	convert                // a collective that changes the placement
	cutOut                 // the free local slice of a replicated value
	pick                   // this rank's heads of a replicated key or value
	pickGrad               // their gradient, zero elsewhere
	accumulate             // adds a cotangent to a parameter's gradient
	unshard                // gathers a parameter over its data-parallel shards
	reduce                 // reduces a gradient to its data-parallel shard
	dispatch               // sends rows to the ranks that own their groups
	combine                // brings them back
	offsets                // running sums of counts
	tally                  // counts of the step so far
	rotate                 // what a member some places before has
	piece                  // a run of this rank's rows, as a view
	stack                  // joins such runs
	natural                // rows of all members in the order of the sequence, or back
	swap                   // the first two axes change places
	borders                // of this rank's rows with those of states
	export
	importing
	importGrad
	exportGrad
	offload
	reload
)

// Op is one kind of node: a kernel with its gradient rule, or a structural role.
type Op struct {
	Name   string
	Role   role
	Kernel kernels.Op
	// VJP emits the nodes of the gradient: dy[j] is the cotangent of output j or nil; leg(i) says whether
	// input i wants one and sets the phase for it. It returns one cotangent an input, nil where none.
	VJP   func(t *Tape, n *Node, dy []*Value, leg func(i int) bool) []*Value
	Cheap bool // recomputed by selective recompute: bound by memory, not arithmetic
	Args  int  // operands that the kernel takes, 0 for all; the others serve the gradient only
}

// comm tells whether the operation sends between ranks.
func (o *Op) comm() bool {
	switch o.Role {
	case convert, unshard, reduce, dispatch, combine, rotate:
		return true
	}
	return false
}

// again reports whether a node may be cloned to recompute its outputs.
func (o *Op) again() bool {
	switch o.Role {
	case compute, alias, convert, cutOut, pick, unshard, dispatch, combine, offsets, rotate, piece, stack,
		natural, swap, borders:
		return true
	}
	return false
}

// Recompute is a policy for saved activations.
type Recompute uint8

// Nothing is recomputed, the memory-bound operations are, or a block's whole forward is.
const (
	RecomputeNone Recompute = iota
	RecomputeSelective
	RecomputeFull
)

// Options are what the plan decides; blocks know none of it.
type Options struct {
	Mesh              []MeshAxis   // from the outermost axis on; nil is one rank
	DType             tensor.DType // of activations and model parameters
	RecomputePerPhase bool         // I and W recompute each for themselves, so clones do not live from I to W
	// ZeRO-3: parameters live sharded over the axes marked Zero, gathered block by block
	ShardParams bool
	// bytes on a rank below which all members of a sum are sent all terms, in place of two communications
	SumWhole int
	Overlap  bool // communications are awaited at their first use instead of by the next segment
	// bytes of final gradients behind which a segment of the backward ends, so that they can be sent while
	// the next one runs; 0 is none
	Bucket     int64
	ShardGrads bool // ZeRO-2: each microbatch's gradients are reduced to their shard
	FixedPoint bool // gradients of microbatches are added up in fixed point: see InFixedPoint
	InputGrad  func(port string) bool
	Consumers  func(port string) int // stages that take an output port; nil is one each
	// ports that are held whole by every rank even under SeqParallel: features that rows are taken of
	Whole func(port string) bool
	// Lines says of how many lines each as long the rows of a port are, which members of context parallelism
	// have whole ones of, in the place of rows; 0 for a port of other rows.
	Lines         func(port string) int
	Chunk, Chunks int
	Frozen        func(param string) bool
	Recompute     Recompute
	// in place of DType and Recompute, where blocks differ; nil for none
	Each func(block int) (tensor.DType, Recompute)
	// backwards come in two halves, I and W
	Split bool
	// few microbatches are between forward and backward: a loss that cannot wait may keep what saves it a product
	KeepLogits bool
	Offload    func(v *Value) bool
	// what becomes of a block's tensor between forward and backward, before Recompute and Offload are asked;
	// nil for none
	Choose func(block int, tensor string) Choice
	// tokens of each sequence that a tensor of borders cuts, for costs; nil or 0 is one sequence
	SeqLen func(data string) int
	// how many sequences as long as each other the rows are of where keys of earlier rows are seen too, for costs;
	// 0 is one
	Sequences int
	// how often a forward of attention writes or reads all scores, for costs of programs whose attention is
	// not one kernel; 0 is fused
	Scores float64
	// what a call costs a device that it does not keep busy, for costs: the operations that the device can
	// do in its time, and bytes of memory traffic beside them; nil is a device whose products have one rate
	Device func(w kernels.Work) (flops, bytes int64)
	// what a call is in other software, for costs: bytes of memory traffic beside those, and calls for the one;
	// nil is one call and nothing
	Program func(op kernels.Op, products []kernels.Product, bytes int64) (more int64, calls int)
	NoGrad  bool // forward only
	// Sums says by the name of a mesh axis, which the tape does not have, that this rank takes sums as so
	// many ranks along it do: its results have their bits.
	Sums map[string]int
	// Uncut tells of a parameter, by its full name, that Sums leave it alone: ranks do not cut it along its
	// inputs. nil is none
	Uncut func(name string) bool
	// Low is the precision, of kernels.Precisions, in which layers multiply a weight; nil is 0 for all
	Low func(param string) int
	// Watch says when those that learn are multiplied in the model's own type all the same
	Watch kernels.Watch
	// Travel is the precision, of kernels.Precisions, in which rows go to experts; 0 is that of the rows
	Travel int
	// LowGather says that weights which products round are gathered in eight bits (Tape.Coded)
	LowGather bool
	// History is how many steps the greatest numbers are kept of that delayed scales follow from; 0 keeps none
	History int
	// Fake is how a weight of a layer is rounded while it learns; nil is not at all for all
	Fake func(param string) kernels.Fake
	// Packed is how a matrix of so many columns lies in memory that does not learn; nil is in DType for all
	Packed func(param string, columns int) kernels.Packing
	// rows that a rank may receive where data decides, over the number under even sharing; 0 is not a bound
	MostRows float64
}

// Param is a parameter as the trace met it: where it lives and where its gradient lands.
type Param struct {
	Name        string
	Shape       []int // global
	Place, Grad Place // Grad is partial on every axis over which the optimizer step still has to sum it
	Fold        int   // the mesh, of those folded over the ranks, that it lies on
	Frozen      bool
	Decay       bool // weight decay applies
	Fixed       bool // no gradient of the loss reaches it, and it counts in no norm
	// Largest is set where its gradient is the greatest over microbatches and ranks of what each has, and no
	// sum: every rank has all of it, and makes it anew by itself
	Largest bool
	Peak    *Peak // how it shrinks where scores of attention are too great; nil for not at all
	Rule    Rule  // what makes it anew of its gradient, in place of an optimizer
	Block   int   // of the model, that declared it first
	Experts bool  // each row is an expert's of its block, and lies where the expert does
	Copies  int   // of the rows, how many there are beyond one an expert
	Taps    bool  // each row is the taps of a channel by itself (a depthwise convolution): it is no matrix
	Parts   int   // in how many parts sums over its last axis are taken (Options.Sums), 0 for one
	// how it lies in memory, where that is not one number an element: Value then has its words, Shape is
	// that of the numbers
	Packed kernels.Packing
	Value  *Value
	Local  []int // shape on one rank of the mesh, before any sharding over the axes marked Zero
	graded bool  // Grad is that of the first term of the gradient
}

// Rule is an operation that makes a parameter anew of its gradient and of the scalars of an update, in place
// of an optimizer; the zero value is none.
type Rule struct {
	Op   kernels.Op // in: gradient, clip [kernels.ClipLen]; out: the parameter. Or the name of a Move
	Attr kernels.Attr
	With []string // of a Move: parameters that it reads, which were declared before this one, by their full names
}

// Port is an activation that enters or leaves a stage.
type Port struct {
	Name  string
	Value *Value
	Grad  bool // a cotangent flows back through it
	Fan   int  // consumers of an output port
	Late  bool // the backward still needs the value of an output port
}

// Tape records. It is dead once Finish has returned.
type Tape struct {
	Options
	nodes    []*Node
	nval     int
	phase    Phase
	block    int
	cache    map[convKey]*Value
	cts      map[*Value][]*Value
	params   map[string]*Param
	order    []*Param
	datas    map[string]*Value
	cuts     []*Node  // of sequences, each made once
	runs     []*Node  // borders of runs of rows with states, each made once
	names    []string // of datas, in order
	ins      []*Port
	outs     []*Port
	loss     *Value
	observed *Value       // of Observed, nil for nothing
	whole    map[int]bool // blocks that are no recompute units
	late     []*Node      // gradient reductions waiting for the end of their block
	still    bool         // parameters are declared that do not learn
	prefix   string       // of the names of parameters
	shapes   [][]int      // room for those of a call's operands
}

// convKey finds a conversion of a value to a place that was recorded before, in a phase that has it.
type convKey struct {
	v  *Value
	p  Place
	ph Phase
}

// NewTape returns an empty tape.
func NewTape(o Options) *Tape {
	o.Chunks = max(1, o.Chunks)
	if len(o.Mesh) > MaxAxes {
		panic(fmt.Sprintf("grad: %d mesh axes, at most %d", len(o.Mesh), MaxAxes))
	}
	return &Tape{Options: o, block: -1, cache: map[convKey]*Value{}, cts: map[*Value][]*Value{},
		params: map[string]*Param{}, datas: map[string]*Value{}, whole: map[int]bool{}}
}

// Block records f as recompute unit i; i is the block's index in the model.
func (t *Tape) Block(i int, f func()) {
	d := t.DType
	t.DType, _ = t.of(i)
	t.block = i
	f()
	t.block, t.DType = -1, d
}

// of is the dtype and the policy of block i.
func (o *Options) of(i int) (tensor.DType, Recompute) {
	if o.Each == nil {
		return o.DType, o.Recompute
	}
	return o.Each(i)
}

// DTypeOf is the dtype of what block i computes.
func (o *Options) DTypeOf(i int) tensor.DType { d, _ := o.of(i); return d }

// Part records f as block i of the model without making it a recompute unit: an embedding or a loss head,
// whose forward costs more to repeat than to save.
func (t *Tape) Part(i int, f func()) { t.whole[i] = true; t.Block(i, f) }

// spec is the shape, type and place of an output.
type spec struct {
	shape []int
	dtype tensor.DType
	place Place
}

// emit records a node. Its outputs need a gradient if some input does and the operation can pass it
// on; they count as weights if all inputs do.
func (t *Tape) emit(op *Op, at kernels.Attr, in []*Value, outs ...spec) *Node {
	n := &Node{ID: len(t.nodes), Op: op, In: in, Attr: at, Phase: t.phase, Block: t.block}
	need, weight := false, len(in) > 0
	for _, v := range in {
		if v != nil {
			need = need || v.Need
			weight = weight && v.Weight
		}
	}
	carries := op.VJP != nil || op.Role == convert || op.Role == cutOut || op.Role == alias || op.Role == unshard
	ragged := t.ragged(op, in, outs)
	for _, o := range outs {
		n.Out = append(n.Out, &Value{ID: t.nval, Name: op.Name, Shape: o.shape, DType: o.dtype, Place: o.place,
			Need: need && carries, Weight: weight, Ragged: ragged, Node: n})
		t.nval++
	}
	t.nodes = append(t.nodes, n)
	return n
}

func (t *Tape) one(op *Op, at kernels.Attr, d tensor.DType, shape []int, p Place, in ...*Value) *Value {
	return t.emit(op, at, in, spec{shape, d, p}).Out[0]
}

var (
	opParam  = &Op{Name: "param", Role: param}
	opData   = &Op{Name: "data", Role: data}
	opConst  = &Op{Name: "const", Role: constant}
	opRecv   = &Op{Name: "recv", Role: recv}
	opRecvG  = &Op{Name: "recvgrad", Role: recvGrad}
	opSendG  = &Op{Name: "sendgrad", Role: sendGrad}
	opSeed   = &Op{Name: "seed", Role: seed}
	opConv   = &Op{Name: "convert", Role: convert}
	opCut    = &Op{Name: "cut", Role: cutOut}
	opAcc    = &Op{Name: "accumulate", Role: accumulate, Kernel: kernels.AddTo}
	opUnsh   = &Op{Name: "unshard", Role: unshard}
	opMost   = &Op{Name: "accumulate_largest", Role: accumulate, Kernel: kernels.LargestTo}
	opReduce = &Op{Name: "reduce", Role: reduce}
	opOff    = &Op{Name: "offload", Role: offload, Kernel: kernels.Cast}
	opReload = &Op{Name: "reload", Role: reload, Kernel: kernels.Cast}
)

// to inserts the collectives (or free local slices) that bring v to placement p, one mesh axis at a time.
func (t *Tape) to(v *Value, p Place) *Value {
	for {
		m, part, more := t.next(v.Place, p)
		if !more {
			return v
		}
		v = t.toAxis(v, m, part)
	}
}

// toAxis changes how v lies on one axis of the mesh, by a collective or, from replicated, by a cut.
// An equal change from this phase or before is used again.
func (t *Tape) toAxis(v *Value, m int, want Part) *Value {
	p := v.Place
	p[m] = want
	if want.Kind == Partial {
		panic(fmt.Sprintf("grad: no change of %s from %v to partial", v.Name, v.Place))
	}
	for ph := F; ph <= t.phase; ph++ {
		if c := t.cache[convKey{v, p, ph}]; c != nil {
			return c
		}
	}
	// The slices of another axis lie within these, so changing the outer one first would mix them up.
	if in := t.inner(v.Place, m, want); in >= 0 {
		panic(fmt.Sprintf("grad: %s %v changes to %v on %s while %s still shards the same axis within it",
			v.Name, v.Place, p, t.Mesh[m].Name, t.Mesh[in].Name))
	}
	if want.Kind == Sharded && local(t.Mesh, v.Shape, v.Place)[want.Axis]%t.Mesh[m].Size != 0 {
		panic(fmt.Sprintf("grad: axis %d of %s %v does not divide by %s=%d", want.Axis, v.Name, v.Shape,
			t.Mesh[m].Name, t.Mesh[m].Size))
	}
	op := opConv
	if v.Place[m].Kind == Replicated {
		op = opCut
	}
	c := t.one(op, kernels.Attr{}, v.DType, v.Shape, p, v)
	c.Name, c.Node.Axes = v.Name, []int{m}
	t.cache[convKey{v, p, t.phase}] = c
	return c
}

// full resolves partial placements to replicated.
func (t *Tape) full(v *Value) *Value { return t.to(v, v.Place.dual()) }

// only keeps sharding on the given tensor axes and replicates the rest.
func (t *Tape) only(v *Value, axes ...int) *Value {
	p := v.Place
	for m := range p {
		keep := false
		for _, a := range axes {
			keep = keep || p[m] == Part{Sharded, int8(a)}
		}
		if !keep {
			p[m] = Part{}
		}
	}
	return t.to(v, p)
}

// Data is a tensor of the microbatch, replicated over the mesh.
func (t *Tape) Data(name string, d tensor.DType, shape ...int) *Value {
	if v := t.datas[name]; v != nil {
		return v
	}
	v := t.one(opData, kernels.Attr{Name: name}, d, shape, Place{})
	v.Name = name
	t.datas[name] = v
	t.names = append(t.names, name)
	return v
}

// Instead has Data give v in the place of a tensor of the microbatch until the returned function is called:
// what else is data may come from blocks before.
func (t *Tape) Instead(name string, v *Value) (end func()) {
	before, was := t.datas[name]
	t.datas[name] = v
	return func() {
		if delete(t.datas, name); was {
			t.datas[name] = before
		}
	}
}

// Const is a constant of the model, such as the inverse frequencies of a rotary embedding; it is part of the trace.
func (t *Tape) Const(name string, v []float32) *Value {
	c := t.one(opConst, kernels.Attr{Name: name}, tensor.F32, []int{len(v)}, Place{})
	c.Name, c.Const = name, tensor.Of(tensor.F32, v, len(v))
	return c
}

// ConstOf is a constant of any shape in the dtype of the block.
func (t *Tape) ConstOf(name string, v []float32, shape ...int) *Value {
	return t.constOf(name, t.DType, v, shape...)
}

func (t *Tape) constOf(name string, d tensor.DType, v []float32, shape ...int) *Value {
	return t.asType(t.one(opAlias, kernels.Attr{}, tensor.F32, shape, Place{}, t.Const(name, v)), d)
}

// Like brings v to the placement of another value of as many axes.
func (t *Tape) Like(v, other *Value) *Value { return t.to(v, other.Place) }

// Input is an activation received from another stage, of the dtype of its giver, placed like the residual stream.
func (t *Tape) Input(port string, d tensor.DType, shape ...int) *Value {
	v := t.one(opRecv, kernels.Attr{Name: port}, d, shape, t.portPlace(port, shape[0]))
	v.Name, v.Need = port, d.Float() && !t.NoGrad && (t.InputGrad == nil || t.InputGrad(port))
	t.ins = append(t.ins, &Port{Name: port, Value: v, Grad: v.Need})
	return v
}

// Loss adds the scalar v to the loss at the end of the model.
func (t *Tape) Loss(v *Value) {
	v = t.full(v)
	if t.loss != nil {
		v = t.Add(t.loss, v)
	}
	t.loss = v
}
