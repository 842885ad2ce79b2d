package grad

import "github.com/lfactor/lfactor/kernels"

// Convolutions whose members have runs of an axis of space, as frames of a video or lines of a picture:
// each sends the places at the ends of its run to the neighbours whose windows reach over, which is the halo of theirs,
// and all outputs are computed where their inputs lie. What is beyond the first and the last run is padding.

var opEnd, opPass, opEdge, opJoinRuns *Op

func init() {
	opEnd = &Op{Name: "end_of_run", Kernel: kernels.Slice, Cheap: true}
	opEnd.VJP = alone(func(t *Tape, n *Node, d *Value) *Value {
		x, axis, from := n.In[0], n.Attr.I[0], n.Attr.I[1]
		have := local(t.Mesh, x.Shape, x.Place)[axis]
		var at kernels.Attr
		at.I[axis] = kernels.Window{Stride: 1, Dilation: 1, Before: from,
			After: have - from - local(t.Mesh, d.Shape, d.Place)[axis]}.Pack()
		return t.one(opPad, at, x.DType, x.Shape, x.Place, d)
	})
	opPass = &Op{Name: "pass", Role: rotate}
	opPass.VJP = alone(func(t *Tape, n *Node, d *Value) *Value { return t.passed(d, n.Axes, -n.Attr.I[0]) })
	opEdge = &Op{Name: "edge_of_halo", Kernel: kernels.Scale}
	opEdge.VJP = alone(func(t *Tape, n *Node, d *Value) *Value { return t.edged(d, n.Axes, n.Attr.I[0]) })
	opJoinRuns = &Op{Name: "join_halo", Kernel: kernels.Concat, Cheap: true, VJP: joinRunsVJP}
}

// Runs brings x to where members along the mesh axis of a name have runs of a tensor axis. It is x where the
// tape has no such axis, or where the runs would not be of one length.
func (t *Tape) Runs(x *Value, axis int, name string) *Value {
	m := t.Axis(name)
	x = t.full(x)
	if m < 0 || t.Mesh[m].Size == 1 {
		return x
	}
	p := x.Place
	p[m] = Part{}
	if !t.alike(append(p.Cuts(axis), m)) || local(t.Mesh, x.Shape, p)[axis]%t.Mesh[m].Size != 0 {
		return x
	}
	p[m] = Part{Sharded, int8(axis)}
	return t.to(x, p)
}

// passed gives every member what the one so many places before it along the axes has.
func (t *Tape) passed(v *Value, axes []int, by int) *Value {
	r := t.one(opPass, kernels.Attr{I: [4]int{by}}, v.DType, v.Shape, v.Place, v)
	r.Node.Axes = axes
	return r
}

// edged is v with zeros at the first member along the axes (by > 0), or at the last: nobody is before or
// behind it, and what has come to it round the ring is no neighbour's. The runner knows which member it is.
func (t *Tape) edged(v *Value, axes []int, by int) *Value {
	r := t.one(opEdge, kernels.Attr{I: [4]int{by}, F: [2]float64{1}}, v.DType, v.Shape, v.Place, v)
	r.Node.Axes = axes
	return r
}

// atEdge is the factor of a halo on a member: 0 where it comes from beyond the first or the last.
func (o *Options) atEdge(pos []int, n *Node) float64 {
	member, by := o.Member(pos, n.Axes), n.Attr.I[0]
	if by > 0 && member == 0 || by < 0 && member == o.Members(n.Axes)-1 {
		return 0
	}
	return 1
}

// withRuns is the shape of x with runs of another length along an axis on each member.
func (t *Tape) withRuns(x *Value, axis, length int) []int {
	shape := append([]int(nil), x.Shape...)
	shape[axis] = length * t.Members(x.Place.Cuts(axis))
	return shape
}

// end is n places of each member's run, from one on.
func (t *Tape) end(x *Value, axis, from, n int) *Value {
	return t.one(opEnd, kernels.Attr{I: [4]int{axis, from}}, x.DType, t.withRuns(x, axis, n), x.Place, x)
}

// halo puts the last places of the run before a member's in front of its run, and the first of the next behind it.
func (t *Tape) halo(x *Value, axis, before, after int) *Value {
	axes, have := x.Place.Cuts(axis), local(t.Mesh, x.Shape, x.Place)[axis]
	var parts []*Value
	if before > 0 {
		parts = append(parts, t.edged(t.passed(t.end(x, axis, have-before, before), axes, 1), axes, 1))
	}
	parts = append(parts, x)
	if after > 0 {
		parts = append(parts, t.edged(t.passed(t.end(x, axis, 0, after), axes, -1), axes, -1))
	}
	if len(parts) == 1 {
		return x
	}
	return t.one(opJoinRuns, kernels.Attr{I: [4]int{axis}}, x.DType,
		t.withRuns(x, axis, max(0, before)+have+max(0, after)), x.Place, parts...)
}

// joinRunsVJP is the gradient of joining runs of rows with their halos: each input gets its own
// part of the gradient back. Lengths are the local ones, as the halo is counted per member.
func joinRunsVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g, at, axis := make([]*Value, len(n.In)), 0, n.Attr.I[0]
	for i, v := range n.In {
		if leg(i) {
			d := t.to(dy[0], n.Out[0].Place)
			g[i] = t.one(opEnd, kernels.Attr{I: [4]int{axis, at}}, d.DType, v.Shape, v.Place, d)
		}
		at += local(t.Mesh, v.Shape, v.Place)[axis]
	}
	return g
}

// haloed brings the runs of x that members have along axes of space to what their outputs need, and gives the windows
// of the rest; an axis whose runs do not give runs of outputs, or are shorter than a halo, is brought together.
func (t *Tape) haloed(x *Value, w []int, wins []kernels.Window) (*Value, []kernels.Window) {
	last := len(x.Shape) - 1
	keep, out := []int{0, last}, append([]kernels.Window(nil), wins...)
	halos := make([]Edge, len(wins))
	x = t.full(x)
	for i, win := range wins {
		win.Size = w[2+i]
		members := t.Members(x.Place.Cuts(1 + i))
		after := (win.Size-1)*win.Dilation + 1 - win.Stride - win.Before
		run := x.Shape[1+i] / members
		if members == 1 || x.Shape[1+i] != win.Out(x.Shape[1+i])*win.Stride || run%win.Stride != 0 ||
			max(win.Before, after) > run {
			continue
		}
		keep, halos[i] = append(keep, 1+i), Edge{max(0, win.Before), max(0, after)}
		out[i].Before, out[i].After = min(0, win.Before), min(0, after)
	}
	x = t.only(x, keep...)
	for i, h := range halos {
		if h != (Edge{}) {
			x = t.halo(x, 1+i, h.Before, h.After)
		}
	}
	return x, out
}
