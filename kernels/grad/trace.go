package grad

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Segment is work that waits for nobody: it begins when the communications that it awaits have arrived, runs
// Ops, and issues Comm at its end. A communication is awaited by one later segment of the same phase.
type Segment struct {
	Await []Issued
	Ops   []*Node
	Comm  []*Node
	Cost  Cost
	Final []int // places in Params: their gradients get nothing more in the phase
}

// Issued names a communication of a phase: the i-th of a segment.
type Issued struct{ Segment, Comm int }

// Copies is what a segment moves to host memory and back, in bytes on one rank.
func (tr *Trace) Copies(s *Segment) (away, back int64) {
	for _, n := range s.Ops {
		switch n.Op.Role {
		case offload:
			away += bytesOf(&tr.Options, n.Out[0])
		case reload:
			back += bytesOf(&tr.Options, n.Out[0])
		}
	}
	return
}

// Cost is static: what a segment computes and moves on one rank.
type Cost struct {
	Flops int64 // floating-point operations
	// Filled is what a device could do in their time if it were kept busy: Flops, unless Options.Device knows more
	Filled int64
	Bytes  int64 // read and written by kernels that do not hide it behind their own arithmetic
	Comm   int64 // bytes this rank sends
	Calls  int   // kernel calls
}

// Trace is what a stage does with one microbatch (or chunk): a plain value, the same on every rank of the mesh.
type Trace struct {
	Options
	Params     []*Param
	In, Out    []*Port
	LossOut    *Value
	Seen       *Value   // of Tape.Observed, or nil
	Data       []string // the tensors of the microbatch that the stage reads
	F, B, I, W []Segment
	Values     int
	freeB      map[int][]int // slots that die after a node, when the backward is one piece
	freeIW     map[int][]int // and when it is split
	kept       []int         // slots that outlive a frame of a parted trace
	nodes      []*Node
	whole      map[int]bool // blocks that are no recompute units
}

// Finish differentiates, applies the policies and lowers to segments. The tape is dead afterwards.
func (t *Tape) Finish() *Trace {
	t.nodes = t.hoist(t.unread(t.nodes))
	for i, n := range t.nodes {
		n.ID = i
	}
	if !t.NoGrad {
		t.backward()
		t.overData()
	}
	t.rewrite()
	t.scatterGather()
	tr := &Trace{whole: t.whole, Options: t.Options, Params: t.order, In: t.ins, Out: t.outs,
		LossOut: t.loss, Seen: t.observed, Data: t.names}
	f, i, w := t.nodesOf(F), t.nodesOf(I), t.nodesOf(W)
	b := t.delayWeights(t.nodesOf(I, W))
	late := t.lateNodes(f, b)
	f, b, i = t.forwardOnly(f, late), t.fuseLoss(f, b, late), t.fuseLoss(f, i, late)
	tr.nodes, tr.Values = t.nodes, t.nval
	for _, n := range t.nodes {
		for _, v := range n.Out {
			v.Local = local(t.Mesh, v.Shape, v.Place)
		}
	}
	readers := t.readersOf()
	f, b, i, w = fuse(f, readers), fuse(b, readers), fuse(i, readers), fuse(w, readers)
	tr.F, tr.B, tr.I, tr.W = t.cut(f), t.cut(b), t.cut(i), t.cut(w)
	tr.freeB, tr.freeIW = t.frees(f, b), t.frees(f, i, w)
	passing(append(f, b...), tr.freeB)
	passing(append(i, w...), tr.freeIW)
	return tr
}

// nodesOf are the nodes of these phases that do something; parameters and constants are just there.
func (t *Tape) nodesOf(phases ...Phase) (ns []*Node) {
	for _, n := range t.nodes {
		for _, p := range phases {
			if n.Phase == p && n.Op.Role != param && n.Op.Role != constant {
				ns = append(ns, n)
			}
		}
	}
	return
}

// Flops is the floating-point operations of one node on one rank.
func (tr *Trace) Flops(n *Node) int64 {
	var c Cost
	t := Tape{Options: tr.Options}
	t.cost(&c, n)
	return c.Flops
}

// GroupSize is the number of ranks that a communication node joins.
func (t *Options) GroupSize(n *Node) int { return t.Members(n.Axes) }

func bytesOf(t *Options, v *Value) int64 {
	return int64(tensor.Len(t.shapeOf(v)) * v.DType.Size())
}

// shapeOf is a value's shape on one rank.
func (t *Options) shapeOf(v *Value) []int {
	if v.Local != nil { // the trace is finished
		return v.Local
	}
	return local(t.Mesh, v.Shape, v.Place)
}

// hidden is how many operations a byte a kernel makes whose memory traffic hides behind its arithmetic: a
// product, attention. That of others does not: kernels run one after the other.
const hidden = 32

// cost adds what a node costs to c: bytes sent, or operations and bytes moved. Operations in
// epilogues count with their node.
func (t *Tape) cost(c *Cost, n *Node) {
	if n.Op.comm() {
		c.Comm += t.CommBytes(n)
		return
	}
	if n.Op.Kernel == "" || n.Op.Role == offload || n.Op.Role == reload {
		return // copies run on an engine of their own
	}
	ins := len(n.In)
	if most := ins + len(n.Out); len(t.shapes) < most {
		t.shapes = make([][]int, 2*most)
	}
	in, out := t.shapes[:0:ins], t.shapes[ins:ins]
	var n1, moved int64
	for _, v := range n.In {
		if v != nil {
			in, moved = append(in, t.shapeOf(v)), moved+bytesOf(&t.Options, v)
		}
	}
	for _, v := range n.Out {
		l := t.shapeOf(v)
		out, moved, n1 = append(out, l), moved+bytesOf(&t.Options, v), n1+int64(tensor.Len(l))
	}
	s, bound := kernels.Lookup(n.Op.Kernel)
	if bound = bound && s.Flops != nil; bound { // by arithmetic
		n1 = s.Flops(in, out)
	}
	if n2, ok := t.attention(n); ok {
		n1 = n2
	}
	filled, calls, more := n1, 1, int64(0)
	if t.Program != nil {
		var p []kernels.Product
		if s.Products != nil {
			p = s.Products(in, out)
		}
		more, calls = t.Program(n.Op.Kernel, p, moved)
	}
	switch p, bytes, apart := t.unfused(n); {
	case apart:
		n1, filled, moved = kernels.FlopsOf(p), t.filled(p), bytes
	case t.Device != nil && bound:
		filled, moved = t.Device(t.work(n, &s, in, out, n1, moved))
	// Where arithmetic dominates, it hides the traffic of memory.
	case n1 >= hidden*moved:
		moved = 0
	}
	if n.Acc > 0 && len(n.Out) > 0 && t.FixedPoint { // a number of 4 bytes is read, one of 8 read and written
		more, calls = more+20*int64(tensor.Len(t.shapeOf(n.Out[n.sumsInto()]))), calls+1
	}
	c.Bytes, c.Flops, c.Filled, c.Calls = max(0, c.Bytes+moved+more), c.Flops+n1, c.Filled+filled, c.Calls+calls
	for _, e := range n.Then {
		t.cost(c, e)
	}
}

// CommBytes is what one rank sends to all others of the group for a communication node.
func (t *Options) CommBytes(n *Node) int64 {
	size := int64(t.GroupSize(n))
	in := bytesOf(t, n.In[0])
	switch {
	case n.Op.Role == dispatch: // all members of an inner axis get the rows of a group
		return in * int64(n.Attr.I[1]) / size * (size - 1)
	case n.Op.Role == rotate:
		return in
	case n.Op.Role == unshard && n.Attr.I[1] > 0:
		k := n.Out[0].Shape[len(n.Out[0].Shape)-1]
		in = in / int64(k*n.Out[0].DType.Size()) * int64(kernels.CodesLen(k, kernels.Precisions[n.Attr.I[1]].Act.Columns))
		return in / size * (size - 1)
	case n.Op.Role == unshard, n.Op.Role == combine:
		return in / size * (size - 1)
	case n.Op.Role == reduce && t.FixedPoint:
		return 2 * in / size * (size - 1)
	case n.Op.Role == reduce, n.Out[0].Place[n.Axes[0]].Kind == Sharded:
		return in / size * (size - 1)
	}
	return in * (size - 1)
}

// frees lists, for each node, the slots whose last use it is.
func (t *Tape) frees(lists ...[]*Node) map[int][]int {
	const never = -1
	last := slices.Repeat([]int{never}, t.nval)
	for _, l := range lists {
		for _, n := range l {
			for _, v := range n.Out {
				if n.Acc == 0 || v != n.Out[n.sumsInto()] {
					last[v.ID] = n.ID
				}
			}
			read := func(in []*Value) {
				for _, v := range in {
					if v != nil && v.Node.Op.Role != param && v.Const == nil {
						last[v.ID] = n.ID
					}
				}
			}
			read(n.In)
			for _, e := range n.Then {
				for _, v := range e.Out {
					last[v.ID] = n.ID
				}
				read(e.In)
			}
		}
	}
	for _, v := range []*Value{t.loss, t.observed} {
		if v != nil {
			last[v.ID] = never
		}
	}
	for _, p := range t.outs { // taken when F ends, unless the backward still needs it
		if at := last[p.Value.ID]; at == never || t.nodes[at].Phase == F {
			last[p.Value.ID] = never
		} else {
			p.Late = true
		}
	}
	free := make(map[int][]int, len(t.nodes))
	for v, n := range last {
		if n != never {
			free[n] = append(free[n], v)
		}
	}
	return free
}

// Hash identifies the trace; ranks of a group agree on it before anything runs.
func (tr *Trace) Hash() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v %v %v\n", tr.Mesh, tr.DType, tr.Values, tr.Overlap)
	for _, n := range tr.nodes {
		fmt.Fprintf(&b, "%d %s %v %v %d %v", n.ID, n.Op.Name, n.Phase, n.Axes, n.Acc, n.Attr)
		for _, v := range n.In {
			if v != nil {
				fmt.Fprintf(&b, " %d", v.ID)
			}
		}
		for _, v := range n.Out {
			fmt.Fprintf(&b, " >%d%v%v%v", v.ID, v.DType, v.Shape, v.Place)
		}
		b.WriteByte('\n')
	}
	h := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(h[:])
}
