package grad

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Runner executes the segments of one rank's frames. It never communicates: parts for other ranks are
// returned, and parts from them are handed in. Not safe for concurrent use.
type Runner struct {
	Backend kernels.Backend
	Pool    *tensor.Pool // device memory
	Host    *tensor.Pool // offloaded activations
	Pos     []int        // this rank's coordinate on each mesh axis
	Params  map[string]*tensor.Tensor
	Grads   map[string]*tensor.Tensor // of Options.GradType; a parameter without one had no gradient this step
	Seed    float64                   // cotangent of the loss: the loss scale
	Reach   float64                   // see FixedUnit
	// Void says why gradients are worth nothing, though ranks went on so that nobody waits: a *RowsError, a
	// *LogitsError or a *ReachError each. Whoever runs segments takes them out.
	Void []error
	// Routed sees where a layer's router sends tokens, before anything goes there, and may change it: calls
	// of route and of route_order in training. first is the microbatch's row of the call's first token. An
	// error ends the run; nil sees nothing.
	Routed func(f *Frame, block, first int, c *kernels.Call) error
	// Seen is shown what modules take and give, by name, while the call that made it ends; nil sees nothing.
	Seen func(name string, t *tensor.Tensor)
	// Places are, by block, those that experts' rows are put in order of, route_order's third operand;
	// without one it is the order of experts.
	Places map[int]*tensor.Tensor

	tallies map[int]*tallied // by block
	call    kernels.Call
	consts  map[*tensor.Tensor]*tensor.Tensor // constants of the model on a device
}

// Frame is the record of one microbatch: slots over a trace.
type Frame struct {
	Trace   *Trace
	slots   []*tensor.Tensor
	data    map[string]*tensor.Tensor
	in      map[string]*tensor.Tensor // activations of input ports; moved into slots when read
	dout    map[string]*tensor.Tensor // cotangents of output ports
	din     map[string]*tensor.Tensor // cotangents of input ports, to be sent
	Pending int                       // gradients that this frame's exports still wait for
	exports map[string]*tensor.Tensor
	grads   map[string]*tensor.Tensor
	backend kernels.Backend
	chunks  []*Frame // frames of the sequence's chunks, this one included; nil for one chunk
}

// NewFrame starts a record. It takes over the references in data and in; chunks are the earlier chunks of the sequence.
func (r *Runner) NewFrame(tr *Trace, data, in map[string]*tensor.Tensor, chunks []*Frame) *Frame {
	return &Frame{Trace: tr, slots: make([]*tensor.Tensor, tr.Values), data: data, in: in, chunks: chunks,
		backend: r.Backend, din: map[string]*tensor.Tensor{}, exports: map[string]*tensor.Tensor{},
		grads: map[string]*tensor.Tensor{}}
}

// Gradients hands in the cotangents of the output ports before I or B runs; the frame takes over the references.
func (f *Frame) Gradients(dout map[string]*tensor.Tensor) { f.dout = dout }

// list returns the segments of a phase and the slots that die after each node in it.
func (tr *Trace) list(p Phase) ([]Segment, map[int][]int) {
	switch p {
	case F:
		return tr.F, tr.freeB // what dies in a forward is the same with both kinds of backward
	case I:
		return tr.I, tr.freeIW
	case W:
		return tr.W, tr.freeIW
	}
	return tr.B, tr.freeB
}

// Segments is the list of one phase.
func (tr *Trace) Segments(p Phase) []Segment { s, _ := tr.list(p); return s }

// Step runs segment pc of a phase. arrived holds, for each communication that the segment awaits, the parts
// of all members in order. It returns the parts to send for each communication that the segment issues, by
// member. An error is a *tensor.BudgetError or a *RowsError: the frame is then dead and Drop frees it.
func (r *Runner) Step(f *Frame, p Phase, pc int, arrived [][]Bundle) (parts [][]Bundle, err error) {
	defer func() {
		if x := recover(); x != nil {
			switch e := x.(type) {
			case *tensor.BudgetError:
				err = e
			case *RowsError:
				err = e
			case *RoutingError:
				err = e
			default:
				panic(x)
			}
		}
	}()
	segs, free := f.Trace.list(p)
	if len(segs) == 0 {
		return nil, nil // nothing of the stage learns
	}
	for i, at := range segs[pc].Await {
		r.join(f, segs[at.Segment].Comm[at.Comm], arrived[i])
	}
	for _, at := range segs[pc].Await {
		f.release(free[segs[at.Segment].Comm[at.Comm].ID])
	}
	for _, n := range segs[pc].Ops {
		r.Pool.Block(n.Block)
		r.exec(f, n)
		f.release(free[n.ID])
	}
	r.Pool.Block(-1)
	for _, n := range segs[pc].Comm {
		parts = append(parts, r.split(f, n))
	}
	return parts, nil
}

// release frees the values in these slots; a slot that is empty already is passed over.
func (f *Frame) release(slots []int) {
	for _, s := range slots {
		if t := f.slots[s]; t != nil {
			t.Release()
			f.slots[s] = nil
		}
	}
}

// Loss takes the loss out of the frame when F or B has ended; 0 for a stage without one, or if it comes with the other.
func (f *Frame) Loss() float64 { return float64(f.numbers(f.Trace.LossOut)[0]) }

// Observed takes what Tape.Observed has seen out of the frame when F has ended; a 0 where nothing is.
func (f *Frame) Observed() []float32 { return f.numbers(f.Trace.Seen) }

// numbers takes a list of numbers out of the frame, a 0 where it is not there.
func (f *Frame) numbers(l *Value) []float32 {
	if l == nil || f.slots[l.ID] == nil {
		return []float32{0}
	}
	h := kernels.Host(f.backend, f.slots[l.ID])
	v := slices.Clone(h.F32())
	h.Release()
	f.release([]int{l.ID})
	return v
}

// Outputs takes the output ports' activations when F has ended; the caller owns a reference to each.
func (f *Frame) Outputs() map[string]*tensor.Tensor {
	out := map[string]*tensor.Tensor{}
	for _, p := range f.Trace.Out {
		out[p.Name] = f.slots[p.Value.ID]
		if p.Late {
			out[p.Name].Retain()
		} else {
			f.slots[p.Value.ID] = nil
		}
	}
	return out
}

// InputGradients takes the cotangents of the input ports when I or B has ended.
func (f *Frame) InputGradients() map[string]*tensor.Tensor {
	d := f.din
	f.din = map[string]*tensor.Tensor{}
	return d
}

// Close ends a record whose last phase has run. Storage that is still held is our bug and is named.
func (f *Frame) Close() {
	for i, t := range f.slots {
		if t != nil {
			panic(fmt.Sprintf("grad: frame closed with slot %d of %d live: %s", i, len(f.slots), f.Trace.where(i)))
		}
	}
	f.Drop()
}

// Drop releases everything that the frame holds, at any time.
func (f *Frame) Drop() {
	for i, t := range f.slots {
		if t != nil {
			t.Release()
			f.slots[i] = nil
		}
	}
	for _, m := range []map[string]*tensor.Tensor{f.data, f.in, f.dout, f.din, f.exports, f.grads} {
		for k, t := range m {
			if t != nil {
				t.Release()
			}
			delete(m, k)
		}
	}
}

func (tr *Trace) where(id int) string {
	for _, n := range tr.nodes {
		for _, v := range n.Out {
			if v.ID == id {
				return fmt.Sprintf("node %d %s (%v, block %d, %v)", n.ID, n.Op.Name, n.Phase, n.Block, v.Place)
			}
		}
	}
	return "?"
}

// Place copies data into the memory of a device that cannot read the host's.
func (r *Runner) Place(data map[string]*tensor.Tensor) error {
	if _, ok := r.Backend.(kernels.Device); !ok {
		return nil
	}
	for name, t := range data {
		c, err := r.Pool.New(name, t.DType, t.Shape...)
		if err != nil {
			return err
		}
		kernels.Write(c, t.Bytes())
		data[name] = c
	}
	return nil
}

func (r *Runner) alloc(v *Value) *tensor.Tensor { return r.allocShape(v.Name, v.DType, v.Local) }

// shape is that of a node's result on this rank: the rows of a ragged one are those of the ragged operand.
func (r *Runner) shape(f *Frame, n *Node, v *Value) []int {
	if n.cut != nil && v.DType == tensor.I32 { // as many as the data has
		count := r.operand(f, n, n.In[0]).Shape[0]
		return []int{count - (n.Out[0].Shape[0] - v.Shape[0])}
	}
	if !v.Ragged {
		return v.Local
	}
	for _, in := range n.In {
		if in != nil && in.Ragged {
			return append([]int{r.operand(f, n, in).Shape[0]}, v.Local[1:]...)
		}
	}
	panic("grad: " + n.Op.Name + " has ragged results of operands that are not")
}

func (r *Runner) allocShape(name string, d tensor.DType, shape []int) *tensor.Tensor {
	t, err := r.Pool.New(name, d, shape...)
	if err != nil {
		panic(err)
	}
	return t
}

// operand is what a node reads for v.
func (r *Runner) operand(f *Frame, n *Node, v *Value) *tensor.Tensor {
	if v == nil {
		return nil
	}
	if v.Const != nil {
		return r.constant(v.Const)
	}
	if v.Node.Op.Role == param {
		p := r.Params[v.Name]
		if p == nil {
			panic("grad: no parameter " + v.Name)
		}
		return p
	}
	t := f.slots[v.ID]
	if t == nil {
		panic(fmt.Sprintf("grad: node %d %s reads dead value %d of %s", n.ID, n.Op.Name, v.ID, v.Node.Op.Name))
	}
	return t
}

func (r *Runner) exec(f *Frame, n *Node) {
	switch n.Op.Role {
	case compute:
		r.compute(f, n)
	case offload:
		r.copyTo(f, n, r.Host)
	case reload:
		r.copyTo(f, n, r.Pool)
	case alias:
		f.slots[n.Out[0].ID] = r.operand(f, n, n.In[0]).Alias(r.shape(f, n, n.Out[0])...)
	case cutOut:
		at := n.Out[0].Place[n.Axes[0]].Axis
		r.slice(f, n, int(at), r.Pos[n.Axes[0]]*n.Out[0].Local[at])
	case pick:
		r.slice(f, n, 1, r.picked(f, n, n.In[0].Shape[1]))
	case pickGrad:
		r.pickGrad(f, n)
	case seed:
		t := r.alloc(n.Out[0])
		kernels.Write(t, tensor.Of(tensor.F32, []float32{float32(r.Seed)}, 1).Bytes())
		f.slots[n.Out[0].ID] = t
	case offsets:
		r.offsets(f, n)
	case tally:
		r.tally(f, n)
	case piece, stack, natural:
		r.pieces(f, n)
	case swap:
		r.swap(f, n)
	case borders:
		r.stateBorders(f, n)
	case accumulate:
		r.accumulate(f, n, r.operand(f, n, n.In[0]))
	default:
		r.port(f, n)
	}
}

func (r *Runner) compute(f *Frame, n *Node) {
	c := &r.call
	c.Op, c.Attr, c.In, c.Out = n.Op.Kernel, n.Attr, c.In[:0], c.Out[:0]
	ins := n.In
	if n.Op.Args > 0 {
		ins = ins[:n.Op.Args]
	}
	for _, v := range ins {
		c.In = append(c.In, r.operand(f, n, v))
	}
	for i, v := range n.Out {
		if n.Acc > 0 && i == n.sumsInto() {
			c.Out = append(c.Out, r.gradient(f, n, &c.Attr))
			continue
		}
		t := r.allocShape(v.Name, v.DType, r.shape(f, n, v))
		f.slots[v.ID] = t
		c.Out = append(c.Out, t)
	}
	if place := r.Places[n.Block]; place != nil && c.Op == kernels.RouteOrder {
		c.In = append(c.In, place)
	}
	r.ranked(f, n, c)
	term := r.term(f, n, c)
	views := append(r.unpad(f, n, c), r.epilogues(f, n, c)...)
	r.Backend.Run(c)
	if term != nil {
		r.addFixed(f.Trace.Params[n.Acc-1], term)
		term.Release()
	}
	if r.Seen != nil {
		r.seen(f, n, c)
		for i, e := range n.Then {
			r.seen(f, e, c.Then[i])
		}
	}
	for _, t := range views {
		t.Release()
	}
	if (c.Op == kernels.Route || c.Op == kernels.RouteOrder || c.Op == kernels.KindExperts) && !f.Trace.NoGrad {
		r.routed(f, n, c)
	}
}

// unpad leaves rows of padding out of the operands and results of the loss: they are no tokens, so they have
// no probability and no gradient. It returns the views it took.
func (r *Runner) unpad(f *Frame, n *Node, c *kernels.Call) (cut []*tensor.Tensor) {
	dw := -1
	switch n.Op.Kernel {
	case kernels.LinearLSE, kernels.LinearCEDX:
	case kernels.LinearCEDW:
		dw = 0
	case kernels.LinearCEBwd:
		dw = 1
	default:
		return nil
	}
	if n.Axes == nil {
		return nil
	}
	local := n.In[1].Local[0]
	rows := min(local, max(0, n.In[1].Shape[0]-f.Trace.Member(r.Pos, n.Axes)*local))
	if rows == local {
		return nil
	}
	view := func(t *tensor.Tensor, from, to int) *tensor.Tensor {
		cut = append(cut, t.RowSlice(from, to))
		return cut[len(cut)-1]
	}
	c.In[1] = view(c.In[1], 0, rows)
	if dw >= 0 {
		if g := c.Out[dw]; c.Attr.I[1] != kernels.Accumulate {
			r.Backend.Run(&kernels.Call{Op: kernels.Fill, Out: []*tensor.Tensor{view(g, rows, local)}})
		}
		c.Out[dw] = view(c.Out[dw], 0, rows)
	}
	return cut
}

// ranked sets what depends on this rank: the first row of a vocabulary shard or of its tokens, and the bias
// that one member of a partial sum adds.
func (r *Runner) ranked(f *Frame, n *Node, c *kernels.Call) {
	switch n.Op.Kernel {
	case kernels.Embed, kernels.LinearLSE, kernels.LinearCEDX, kernels.LinearCEDW, kernels.LinearCEBwd:
		if n.Axes != nil {
			c.Attr.I[0] = f.Trace.Member(r.Pos, n.Axes) * c.In[1].Shape[0]
		}
	case kernels.EmbedDW:
		if n.Axes != nil {
			c.Attr.I[1] = f.Trace.Member(r.Pos, n.Axes) * c.Out[0].Shape[0]
		}
	case kernels.CutSequences, kernels.CutParts:
		c.Attr.I = n.cut.rows(f.Trace.Member(r.Pos, n.Axes), n.Attr.I[1])
	case kernels.BalanceSums, kernels.Surplus, kernels.ZLoss:
		c.Attr.I[2] = f.Trace.Member(r.Pos, n.Axes) * c.In[0].Shape[0]
	case kernels.BalanceSumsBwd, kernels.ZLossBwd:
		c.Attr.I[2] = f.Trace.Member(r.Pos, n.Axes) * c.In[1].Shape[0]
	case kernels.AttentionPeak:
		c.Attr.I[2] = f.Trace.Member(r.Pos, n.Axes) * c.In[0].Shape[1]
	case kernels.Scale:
		if n.Op == opEdge {
			c.Attr.F[0] = f.Trace.atEdge(r.Pos, n)
		}
	case kernels.Linear, kernels.LowLinear, kernels.Conv, kernels.ConvDX:
		for m := range r.Pos {
			if len(c.In) > 2 && c.In[2] != nil && n.Out[0].Place[m].Kind == Partial && r.Pos[m] != 0 {
				c.In[2] = nil
			}
		}
	}
}

// gradient is the accumulator of node n's parameter; the attribute tells the kernel to set or to add.
func (r *Runner) gradient(f *Frame, n *Node, at *kernels.Attr) *tensor.Tensor {
	p := f.Trace.Params[n.Acc-1]
	slot := 0
	if n.Op.Kernel == kernels.LinearCEDW || n.Op.Kernel == kernels.LinearCEBwd || n.Op.Kernel == kernels.LinearCE {
		slot = 1
	}
	g := r.Grads[p.Name]
	if fixed := f.Trace.InFixedPoint(p); g == nil || fixed {
		g = r.allocShape("gradient of "+p.Name, tensor.F32, p.Local)
		if !fixed {
			r.Grads[p.Name] = g
		}
		at.I[slot] = 0
		return g
	}
	at.I[slot] = kernels.Accumulate
	return g
}

// accumulate adds t to a parameter's gradient.
func (r *Runner) accumulate(f *Frame, n *Node, t *tensor.Tensor) {
	p := f.Trace.Params[n.Acc-1]
	if f.Trace.InFixedPoint(p) {
		r.addFixed(p, t)
		return
	}
	g, add := r.Grads[p.Name], kernels.Accumulate
	if g == nil {
		g = r.allocShape("gradient of "+p.Name, tensor.F32, t.Shape)
		r.Grads[p.Name], add = g, 0
	}
	op := kernels.AddTo
	if n.Op == opMost {
		op = kernels.LargestTo
	}
	r.run(op, kernels.Attr{I: [4]int{add}}, []*tensor.Tensor{t}, g)
}

func (r *Runner) run(op kernels.Op, at kernels.Attr, in []*tensor.Tensor, out ...*tensor.Tensor) {
	r.Backend.Run(&kernels.Call{Op: op, In: in, Out: out, Attr: at})
}

func (r *Runner) slice(f *Frame, n *Node, axis, from int) {
	t := r.allocShape(n.Out[0].Name, n.Out[0].DType, r.shape(f, n, n.Out[0]))
	r.run(kernels.Slice, kernels.Attr{I: [4]int{axis, from}}, []*tensor.Tensor{r.operand(f, n, n.In[0])}, t)
	f.slots[n.Out[0].ID] = t
}

func (r *Runner) copyTo(f *Frame, n *Node, pool *tensor.Pool) {
	v := n.Out[0]
	from := r.operand(f, n, n.In[0])
	t, err := pool.New(v.Name, v.DType, from.Shape...)
	if err != nil {
		panic(err)
	}
	kernels.Move(r.Backend, t, from)
	f.slots[v.ID] = t
}
