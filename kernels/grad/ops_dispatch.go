package grad

import (
	"fmt"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Rows whose number is decided by data. Dispatch sends each row to the member of a mesh axis that owns the row's group
// (an expert); Combine brings rows back. Between the two lie ragged values: their number of rows on a rank is known
// when all parts have come, because every part carries its counts. The trace stays static: what it says of a ragged
// value's rows is the number under even sharing, which costs and memory are planned with, and the runner takes the real
// one from its operands. Nothing between Dispatch and Combine communicates along an axis whose members hold samples of
// their own or other groups, so ranks with different numbers of rows never wait for each other there.

var opDispatch, opCombine, opOffsets *Op

func init() {
	opDispatch = &Op{Name: "dispatch", Role: dispatch, VJP: dispatchVJP}
	opCombine = &Op{Name: "combine", Role: combine, VJP: combineVJP}
	opOffsets = &Op{Name: "offsets", Role: offsets}
}

// Dispatched says where rows went, so that they find their way back.
type Dispatched struct {
	Off *Value // first row of each of this rank's groups, and the end of the last: [groups/members + 1] i32
	x   *Value // the rows as they were sent
	// rows sent to each group, and received of each group from each member; recv is nil where nobody else has groups
	send, recv *Value
	axes       []int
	copies     int // ranks that each get all rows of a group
}

// Dispatch sends rows of x [n d], which are in order of their groups, to the ranks along a mesh axis that own those
// groups: member i owns an equal, consecutive share of them. counts [groups] i32 says how many rows each group has;
// rows behind the last group's stay behind. The result has the rows of this rank's groups, group by group,
// within a group in order of the sending members. Ranks that hold copies of a row would send it twice,
// so the rows have to be sharded over every axis of x's mesh that has no samples of its own: see Tokens.
// An inner axis, or "", is one along which every group's matrices are cut: all its members get the rows.
func (t *Tape) Dispatch(x, counts *Value, groups int, axis, inner string) (*Value, *Dispatched) {
	for m, a := range t.Mesh {
		if a.Fold == 0 && !a.Data && a.Size > 1 && x.Place[m] != (Part{Sharded, 0}) {
			panic(fmt.Sprintf("grad: rows of %s are copies on the ranks of %s; bring them to Tokens first",
				x.Name, a.Name))
		}
	}
	d := &Dispatched{x: x, send: counts, copies: t.Size(inner)}
	for _, name := range []string{axis, inner} {
		if t.Size(name) > 1 {
			d.axes = append(d.axes, t.Axis(name))
		}
	}
	if d.axes == nil {
		shares := t.Members(x.Place.Cuts(0))
		d.Off = t.one(opOffsets, kernels.Attr{}, tensor.I32, []int{shares * (groups + 1)}, x.Place, counts)
		return x, d
	}
	n := t.Size(axis)
	if groups%n != 0 {
		panic(fmt.Sprintf("grad: %d groups do not divide by %s=%d", groups, axis, n))
	}
	node := t.dispatch(x, d, groups/n)
	d.Off, d.recv = node.Out[1], node.Out[2]
	return node.Out[0], d
}

// dispatch emits the communication for rows that lie as d.x does. own is the number of groups of a rank.
func (t *Tape) dispatch(x *Value, d *Dispatched, own int) *Node {
	members := t.Members(d.axes)
	n, p := members/d.copies, Place{}
	if n > 1 {
		p[d.axes[0]] = Part{Sharded, 0}
	}
	rows := local(t.Mesh, x.Shape, x.Place)[0] * members
	shape := append([]int{rows}, x.Shape[1:]...)
	node := t.emit(opDispatch, kernels.Attr{I: [4]int{own, d.copies}}, []*Value{x, d.send}, spec{shape, x.DType, p},
		spec{[]int{n * (own + 1)}, tensor.I32, p}, spec{[]int{n * members * own}, tensor.I32, p})
	node.Axes = d.axes
	node.Out[0].Ragged = true
	node.sent = d
	for _, o := range node.Out[1:] {
		o.Need, o.Kept = false, true
	}
	return node
}

// Combine brings the rows y, which lie as Dispatch left them, back to where they came from, in the order in
// which they were sent. Along an inner axis they are partial: each row is summed where it is at home.
func (t *Tape) Combine(y *Value, d *Dispatched) *Value {
	if d.axes == nil {
		return y
	}
	return t.combine(t.to(y, t.returning(y, d)), d)
}

// returning is the placement of rows that are brought back: as they were dispatched, but for what is summed at home.
func (t *Tape) returning(y *Value, d *Dispatched) Place {
	p := d.recv.Place
	if d.copies > 1 {
		m := d.axes[len(d.axes)-1]
		if p[m] = y.Place[m]; p[m].Kind != Partial {
			panic(fmt.Sprintf("grad: every rank of %s has the whole rows of %s; their matrices are to "+
				"be cut along it", t.Mesh[m].Name, y.Name))
		}
	}
	return p
}

// combine sends the rows of experts back to the tokens that they came from and adds them up there.
// It is the inverse of the dispatch d, whose counts it uses.
func (t *Tape) combine(y *Value, d *Dispatched) *Value {
	shape := append([]int{d.x.Shape[0]}, y.Shape[1:]...)
	n := t.emit(opCombine, kernels.Attr{}, []*Value{y, d.send, d.recv}, spec{shape, y.DType, d.x.Place})
	n.Axes, n.sent = d.axes, d
	return n.Out[0]
}

// dispatchVJP is the gradient of sending rows to experts, which is to bring them back and add up.
func dispatchVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 2)
	if leg(0) && dy[0] != nil {
		g[0] = t.combine(dy[0], n.sent)
	}
	return g
}

// combineVJP is the gradient of bringing rows back, which is to send them out the same way again.
func combineVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g := make([]*Value, 3)
	if leg(0) {
		own := local(t.Mesh, n.sent.Off.Shape, n.sent.Off.Place)[0] - 1
		g[0] = t.dispatch(t.to(dy[0], n.Out[0].Place), n.sent, own).Out[0]
	}
	return g
}

// wanted is the placement that a cotangent of v is brought to: the dual of v's; that of dispatched rows
// stays partial where combine sums it, and that of unit rows where the parameter's gradient is summed.
func (t *Tape) wanted(v *Value) Place {
	n := v.Node
	if n.Op.Role == dispatch && n.sent.copies > 1 && n.Out[0] == v && len(t.cts[v]) > 0 {
		return t.returning(t.cts[v][0], n.sent)
	}
	if (n.Op == opRounded || n.Op == opDecode) && len(t.cts[v]) > 0 {
		of := n.In[0] // the dispatched rows behind it, whose gradient it is
		if of.Node.Op == opDecode {
			of = of.Node.In[0]
		}
		if x := of.Node; x.Op.Role == dispatch && x.sent.copies > 1 && x.Out[0] == of {
			return t.returning(t.cts[v][0], x.sent)
		}
	}
	if n.Op == opUnitRows && len(t.cts[v]) > 0 {
		return t.cts[v][0].Place
	}
	return v.Place.dual()
}

// Tokens shares rows of x out over every axis of its mesh whose ranks would hold copies of them.
func (t *Tape) Tokens(x *Value) *Value {
	var p Place
	for m, a := range t.Mesh {
		if a.Fold == 0 && !a.Data && a.Size > 1 {
			p[m] = Part{Sharded, 0}
		}
	}
	return t.to(x, p)
}

// Keep marks values that are saved for the backward whatever is computed again: where rows go is decided once.
func (t *Tape) Keep(vs ...*Value) {
	for _, v := range vs {
		v.Kept = true
	}
}

// ragged reports whether the rows of an operation's results are those of a ragged operand. An operation that
// could not say so panics.
func (t *Tape) ragged(op *Op, in []*Value, outs []spec) bool {
	var of *Value
	for _, v := range in {
		if v != nil && v.Ragged {
			of = v
		}
	}
	if of == nil || op.Role == combine || op.Role == dispatch || t.sumsRows(op) {
		return false
	}
	for _, o := range outs {
		if len(o.shape) == 0 || o.shape[0] != of.Shape[0] {
			panic(fmt.Sprintf("grad: %s takes no rows whose number data decides", op.Name))
		}
	}
	return true
}

// sumsRows reports whether an operation sums its rows away: a gradient of weights, or what is known of their errors.
func (t *Tape) sumsRows(op *Op) bool {
	return fuses[op.Kernel] || op == opLowError || op == opGreatest || op.Role == accumulate || op.Role == reduce
}

// dispatchParts splits rows by the member that owns their group. Each part carries its counts.
func (r *Runner) dispatchParts(f *Frame, n *Node) []Bundle {
	x, counts, own := r.operand(f, n, n.In[0]), kernels.Ints(r.Backend, r.operand(f, n, n.In[1])), n.Attr.I[0]
	parts, from, copies := make([]Bundle, f.Trace.GroupSize(n)), 0, n.Attr.I[1]
	for d := 0; d < len(parts); d += copies {
		at := d / copies * own
		share, rows := counts[at:at+own], 0
		for _, k := range share {
			rows += int(k)
		}
		for c := range copies {
			parts[d+c] = Bundle{x.RowSlice(from, from+rows), r.ints("rows of groups", share)}
		}
		from += rows
	}
	return parts
}

// takeDispatched puts the rows of all members in order of groups.
func (r *Runner) takeDispatched(f *Frame, n *Node, parts []Bundle) {
	own, rows := n.Attr.I[0], 0
	off, recv := make([]int32, own+1), make([]int32, len(parts)*own)
	at, counts := make([]int, len(parts)), make([][]int32, len(parts))
	for src, p := range parts {
		counts[src] = kernels.Ints(r.Backend, p[1])
	}
	var pieces []*tensor.Tensor
	for g := range own {
		off[g] = int32(rows)
		for src, p := range parts {
			k := int(counts[src][g])
			recv[src*own+g] = int32(k)
			if k > 0 {
				pieces = append(pieces, p[0].RowSlice(at[src], at[src]+k))
			}
			at[src] += k
			rows += k
		}
	}
	off[own] = int32(rows)
	if most := f.Trace.MostRows; most > 0 && rows > Rows(n.Out[0].Local[0], most) {
		over := &RowsError{Block: n.Block, Rows: rows, Even: n.Out[0].Local[0], Most: most}
		if f.Trace.NoGrad {
			panic(over)
		}
		// The step is given up. Others wait for these rows, which come back as zeros.
		r.Void = append(r.Void, over)
		for _, p := range pieces {
			p.Release()
		}
		pieces, rows = nil, 0
		clear(off)
	}
	shape := append([]int{rows}, n.Out[0].Local[1:]...)
	y := r.allocShape(n.Out[0].Name, n.Out[0].DType, shape)
	r.gather(pieces, y)
	f.slots[n.Out[0].ID], f.slots[n.Out[1].ID], f.slots[n.Out[2].ID] = y, r.ints("offsets of groups", off),
		r.ints("rows received", recv)
}

// ints is a tensor of integers that the host has computed.
func (r *Runner) ints(name string, v []int32) *tensor.Tensor {
	t := r.allocShape(name, tensor.I32, []int{len(v)})
	kernels.Write(t, tensor.Of(tensor.I32, v, len(v)).Bytes())
	return t
}

// gather concatenates rows and releases them.
func (r *Runner) gather(pieces []*tensor.Tensor, to *tensor.Tensor) {
	if len(pieces) > 0 {
		r.run(kernels.Concat, kernels.Attr{}, pieces, to)
	}
	for _, p := range pieces {
		p.Release()
	}
}

// combineParts gives each member the rows that it sent, in the order in which it sent them.
func (r *Runner) combineParts(f *Frame, n *Node) []Bundle {
	y, recv := r.operand(f, n, n.In[0]), kernels.Ints(r.Backend, r.operand(f, n, n.In[2]))
	members := f.Trace.GroupSize(n)
	own := len(recv) / members
	from := make([]int, members*own) // first row of what a member sent to a group
	row := 0
	for g := range own {
		for src := range members {
			from[src*own+g] = row
			row += int(recv[src*own+g])
		}
	}
	parts := make([]Bundle, members)
	void := row != y.Shape[0] // more rows came than there is memory for, and none was kept
	for src := range parts {
		var pieces []*tensor.Tensor
		rows := 0
		for g := range own {
			k := int(recv[src*own+g])
			if k > 0 && !void {
				pieces = append(pieces, y.RowSlice(from[src*own+g], from[src*own+g]+k))
			}
			rows += k
		}
		out := r.allocShape("rows on their way back", y.DType, append([]int{rows}, y.Shape[1:]...))
		if void {
			r.run(kernels.Fill, kernels.Attr{}, nil, out)
		}
		r.gather(pieces, out)
		parts[src] = Bundle{out}
	}
	return parts
}

// takeCombined puts the rows that have come back where they were; rows that were not sent are 0.
func (r *Runner) takeCombined(f *Frame, n *Node, parts []Bundle) {
	x, rows := r.alloc(n.Out[0]), 0
	var pieces []*tensor.Tensor
	copies := n.sent.copies
	for d := 0; d < len(parts); d += copies {
		if parts[d][0].Shape[0] > 0 {
			pieces = append(pieces, r.summed(parts[d:d+copies]))
		}
		rows += parts[d][0].Shape[0]
	}
	if stayed := x.Shape[0] - rows; stayed > 0 {
		z := r.allocShape("rows that stayed", x.DType, append([]int{stayed}, x.Shape[1:]...))
		r.run(kernels.Fill, kernels.Attr{}, nil, z)
		pieces = append(pieces, z)
	}
	r.gather(pieces, x)
	f.slots[n.Out[0].ID] = x
}

// summed is the sum of parts that are partial rows of the same tokens.
func (r *Runner) summed(parts []Bundle) *tensor.Tensor {
	if len(parts) == 1 {
		return parts[0][0].Retain()
	}
	var in []*tensor.Tensor
	for _, p := range parts {
		in = append(in, p[0])
	}
	sum := r.allocShape("rows of all members", in[0].DType, in[0].Shape)
	r.run(kernels.Sum, kernels.Attr{}, in, sum)
	return sum
}

// offsets are the running sums of counts.
func (r *Runner) offsets(f *Frame, n *Node) {
	off := []int32{0}
	for _, k := range kernels.Ints(r.Backend, r.operand(f, n, n.In[0])) {
		off = append(off, off[len(off)-1]+k)
	}
	f.slots[n.Out[0].ID] = r.ints("offsets of groups", off)
}
