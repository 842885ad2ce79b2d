package grad

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Where heads of linear attention do not divide, members keep their rows and send each other states. What
// the delta rule leaves of a state S [d e] behind a run of rows is linear in S: N + M·S, and so is what a
// row reads, o + p·S. The rule treats columns of values alike, so one call gives all four: values get d more
// columns, which are zero, and the state before the run is the unit matrix in those columns (ops_states.go
// has how a state is given and read as rows). Then members gather N and M of all runs, each follows the
// states from run to run, and adds to its rows what they read of theirs. Nobody waits for the run before it.

// Relay is a sequence's way along one mesh axis whose members keep their own rows.
type Relay struct {
	t    *Tape
	axis int
	*sharing
	rows int // of a run
}

var opSomeRows, opJoinRows, opReadState, opSwap, opStateBorders *Op

func init() {
	opSomeRows = &Op{Name: "some_rows", Kernel: kernels.Slice, VJP: someRowsVJP}
	opJoinRows = &Op{Name: "join_rows", Kernel: kernels.Concat, VJP: joinRowsVJP}
	opReadState = &Op{Name: "read_state", Kernel: kernels.GroupedLinearDX, VJP: readStateVJP}
	opSwap = &Op{Name: "swap", Role: swap, VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
		if !leg(0) {
			return []*Value{nil}
		}
		return []*Value{t.swap(t.to(dy[0], n.Out[0].Place))}
	}}
	opStateBorders = &Op{Name: "state_borders", Role: borders, Cheap: true}
}

// Relay gives the way of so many rows of tokens, for linear attention with so many key heads of width d and
// values of width e behind a convolution over taps. It is nil where heads divide by the members that share
// tokens, so that Sequence exchanges them; where more than one axis is left, or one whose rows another
// exchange cuts; where runs are shorter than the convolution; and where the columns and rows that states add
// are more work than the rows of the others.
func (t *Tape) Relay(rows, keys, d, e, taps int) *Relay {
	place, axis, n := t.rows(rows, nil), -1, t.Size(TP)
	for m := len(t.Mesh) - 1; m >= 0; m-- { // inner axes exchange rows for heads first
		switch a := t.Mesh[m]; {
		case !a.Context || a.Size == 1 || place[m] != (Part{Sharded, 0}):
		case axis >= 0:
			return nil
		case keys%(n*a.Size) == 0:
			n *= a.Size
		default:
			axis = m
		}
	}
	if axis < 0 {
		return nil
	}
	x := &sharing{axes: []int{axis}, members: t.Mesh[axis].Size, pieces: 1}
	if t.Mesh[axis].Zigzag {
		x.pieces = 2
	}
	r := &Relay{t, axis, x, rows / (x.members * x.pieces)}
	if (t.dealt() > 0) != (x.pieces == 2) || rows%(x.members*x.pieces) != 0 || taps < 2 || r.rows < taps ||
		x.pieces*(r.rows+2*d)*(d+e) > rows*e {
		return nil
	}
	return r
}

// Sequence brings rows of tokens [t h·d] together along the other axes of context parallelism.
func (r *Relay) Sequence(x *Value) *Value {
	x = r.t.full(x)
	p := x.Place
	for m, a := range r.t.Mesh {
		switch {
		case m == r.axis, p[m] == Part{Sharded, 1}:
		case p[m] == Part{Sharded, 0} && a.Context:
			p[m] = Part{Sharded, 1}
		default:
			p[m] = Part{}
		}
	}
	return r.t.to(x, p)
}

// Residual is the inverse of Sequence for what has heads of x.
func (r *Relay) Residual(x *Value) *Value {
	p := x.Place
	for m, a := range r.t.Mesh {
		if a.Context && p[m] == (Part{Sharded, 1}) {
			p[m] = Part{Sharded, 0}
		}
	}
	return r.t.OwnTokens(r.t.to(x, p))
}

// Conv is CausalConv of rows in the order of Sequence. Each run gets the last rows of the one before it,
// which may be of the chunk before, by name. cu are borders of whole sequences, up to the chunk's end or beyond.
func (r *Relay) Conv(name string, x, w, cu *Value) *Value {
	t, halo := r.t, w.Shape[1]-1
	runs := r.runs(x)
	var tails, out []*Value
	for _, run := range runs {
		tails = append(tails, t.ownRows(run, r.rows-halo, halo))
	}
	all := r.gather(t.joinRows(tails...))
	first := r.first(name, all, append([]int{halo}, all.Shape[1:]...))
	if t.more() {
		t.pass(name, t.ownRows(all, all.Shape[0]-halo, halo))
	}
	before := r.deal(t.Concat(0, first, t.ownRows(all, 0, all.Shape[0]-halo)), x.Place)
	w = t.cutHeads(w, x)
	for j, run := range runs {
		run = t.joinRows(t.ownRows(before, j*halo, halo), run)
		b := r.cut(cu, j, kernels.Attr{I: [4]int{-halo, r.rows + halo}})
		y := t.one(opCausalConv, kernels.Attr{}, run.DType, run.Shape, run.Place, run, w, b)
		out = append(out, t.ownRows(y, halo, r.rows))
	}
	return t.joinRows(out...)
}

// first is what lies before a chunk's first run: what the chunk before has passed on, or zeros.
func (r *Relay) first(name string, like *Value, shape []int) *Value {
	if v := r.t.before(name, like, like.Need, shape...); v != nil {
		return v
	}
	return r.t.zeros(like.DType, shape, like.Place)
}

// Rule is DeltaRule of rows in the order of Sequence, which goes on from the state of the chunk before: by name.
//
//lfvet:params the operands of one operation, by the names of its contract
func (r *Relay) Rule(name string, q, k, v, g, beta, cu *Value, eps float64) *Value {
	t, d, e := r.t, q.Shape[2], v.Shape[2]
	k, v, g, beta = t.to(k, q.Place), t.to(v, q.Place), t.to(g, q.Place), t.to(beta, q.Place)
	ins := make([][]*Value, r.pieces)
	for _, x := range []*Value{q, k, v, g, beta} {
		for j, run := range r.runs(x) {
			ins[j] = append(ins[j], run)
		}
	}
	var read, ends, out []*Value
	for j, in := range ins {
		b := r.cut(cu, j, kernels.Attr{I: [4]int{0, r.rows, d, d}})
		o := r.run(in, b, eps)
		read = append(read, t.ownRows(o, d, r.rows))
		ends = append(ends, t.Scale(t.ownRows(o, d+r.rows, d), math.Sqrt(float64(d))))
	}
	starts := r.follow(name, t.joinRows(ends...), d, e)
	for j, o := range read {
		s := t.swap(t.ownRows(starts, j*d, d))
		out = append(out, t.Add(t.Columns(o, 0, e), t.readState(t.Columns(o, e, d), s)))
	}
	return t.joinRows(out...)
}

// run is the rule of one run: behind d rows that write the unit matrix to d further columns of the state,
// and in front of d that read the state.
func (r *Relay) run(in []*Value, cu *Value, eps float64) *Value {
	t, q, k, v := r.t, in[0], in[1], in[2]
	d, e := q.Shape[2], v.Shape[2]
	every := func(x float32) func(int, int) float32 { return func(int, int) float32 { return x } }
	diagonal := func(from int, x float32) func(int, int) float32 {
		return func(i, last int) float32 {
			if last == from+i {
				return x
			}
			return 0
		}
	}
	v = t.Concat(2, v, t.zeros(v.DType, []int{v.Shape[0], v.Shape[1], d}, v.Place))
	around := func(x *Value, before, behind func(i, last int) float32) *Value {
		p := x.Place
		p[r.axis] = Part{}
		like := &Value{Shape: x.Shape, DType: x.DType, Place: p}
		return t.joinRows(t.constant("before", like, d, before), x, t.constant("behind", like, d, behind))
	}
	q, k = around(q, every(0), diagonal(0, unit)), around(k, diagonal(0, unit), diagonal(0, unit))
	v = around(v, diagonal(e, 1), every(0))
	g, beta := around(in[3], every(0), every(0)), around(in[4], every(1), every(0))
	return t.one(opDelta, kernels.Attr{F: [2]float64{eps}}, v.DType, v.Shape, v.Place, q, k, v, g, beta, cu)
}

// follow gives each run the state before it, from what runs make of one: [runs·d n e+d] -> [runs·d n e].
func (r *Relay) follow(name string, ends *Value, d, e int) *Value {
	t, all, runs := r.t, r.gather(ends), r.members*r.pieces
	behind := func(i int, s *Value) *Value {
		end := t.ownRows(all, i*d, d)
		if i == 0 && t.Chunk == 0 { // of no state
			return t.Columns(end, 0, e)
		}
		return t.Add(t.Columns(end, 0, e), t.readState(t.Columns(end, e, d), t.swap(s)))
	}
	states := []*Value{r.first(name, all, []int{d, all.Shape[1], e})}
	for i := range runs - 1 {
		states = append(states, behind(i, states[i]))
	}
	if t.more() {
		t.pass(name, behind(runs-1, states[runs-1]))
	}
	return r.deal(t.Concat(0, states...), ends.Place)
}

// runs are those of a member's rows.
func (r *Relay) runs(x *Value) []*Value {
	if r.pieces == 1 {
		return []*Value{x}
	}
	var out []*Value
	for j := range r.pieces {
		out = append(out, r.t.ownRows(x, j*r.rows, r.rows))
	}
	return out
}

// gather brings all runs' rows together in the order of the sequence; deal gives each member those of its runs again.
func (r *Relay) gather(x *Value) *Value {
	p := x.Place
	p[r.axis] = Part{}
	return r.t.natural(r.t.to(x, p))
}

func (r *Relay) deal(x *Value, p Place) *Value { return r.t.to(r.t.deal(x), p) }

// cut gives the borders of the j-th run with its states, made once for all layers. I[0] is how many rows
// before the run they begin at, negative, and I[1] the number of rows; I[2] and I[3] are those of states.
func (r *Relay) cut(cu *Value, j int, at kernels.Attr) *Value {
	t := r.t
	for _, n := range t.runs {
		if n.In[0] == cu && n.Attr == at && n.cut.query == j && n.cut.keys == r.rows && n.Axes[0] == r.axis {
			return n.Out[0]
		}
	}
	n := t.emit(opStateBorders, at, []*Value{cu}, spec{cu.Shape, tensor.I32, Place{}})
	n.Axes, n.cut = r.axes, &cutOf{sharing: r.sharing, query: j, key: -1, keys: r.rows,
		from: t.Chunk * r.rows * r.members * r.pieces}
	t.runs = append(t.runs, n)
	return n.Out[0]
}

// stateBorders makes borders of one of this rank's runs on the host.
func (r *Runner) stateBorders(f *Frame, n *Node) {
	at := n.Attr.I
	from := n.cut.from + n.cut.piece(f.Trace.Member(r.Pos, n.Axes), n.cut.query)*n.cut.keys + at[0]
	cu := kernels.Ints(r.Backend, r.operand(f, n, n.In[0]))
	out := StateBorders(cu, from, at[1], at[2], at[3], false)
	f.slots[n.Out[0].ID] = r.ints("borders of states", out)
}

// ownRows is rows [from, from+n) of those that each member has of x; joinRows joins what each has.
func (t *Tape) ownRows(x *Value, from, n int) *Value {
	shape := append([]int{n * t.Members(x.Place.Cuts(0))}, x.Shape[1:]...)
	return t.one(opSomeRows, kernels.Attr{I: [4]int{0, from}}, x.DType, shape, x.Place, x)
}

// someRowsVJP puts zeros around the gradient of some rows.
func someRowsVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	if !leg(0) {
		return []*Value{nil}
	}
	x, d := n.In[0], t.to(dy[0], n.Out[0].Place)
	members, from := t.Members(x.Place.Cuts(0)), n.Attr.I[1]
	zeros := func(n int) []*Value {
		if n == 0 {
			return nil
		}
		return []*Value{t.zeros(d.DType, append([]int{n * members}, x.Shape[1:]...), x.Place)}
	}
	parts := append(append(zeros(from), d), zeros((x.Shape[0]-d.Shape[0])/members-from)...)
	if len(parts) == 1 {
		return []*Value{d}
	}
	return []*Value{t.one(opConcat, kernels.Attr{}, d.DType, x.Shape, x.Place, parts...)}
}

// joinRows joins values along their rows. The result is sharded as that input is whose rows are
// shared out among members.
func (t *Tape) joinRows(vs ...*Value) *Value {
	if len(vs) == 1 {
		return vs[0]
	}
	p, rows := vs[0].Place, 0
	for _, v := range vs {
		rows += local(t.Mesh, v.Shape, v.Place)[0]
		if len(v.Place.Cuts(0)) > 0 {
			p = v.Place
		}
	}
	shape := append([]int{rows * t.Members(p.Cuts(0))}, vs[0].Shape[1:]...)
	return t.one(opJoinRows, kernels.Attr{}, vs[0].DType, shape, p, vs...)
}

// joinRowsVJP cuts the gradient into the rows of each input, counted as this member holds them.
func joinRowsVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g, at := make([]*Value, len(n.In)), 0
	for i, v := range n.In {
		if leg(i) {
			d := t.to(dy[0], n.Out[0].Place)
			g[i] = t.one(opSlice, kernels.Attr{I: [4]int{0, at}}, d.DType, v.Shape, v.Place, d)
		}
		at += local(t.Mesh, v.Shape, v.Place)[0]
	}
	return g
}

// readState is x[:,i]·s[i] for each head i of what each member has: x [t n d], s [n d e] -> [t n e].
func (t *Tape) readState(x, s *Value) *Value {
	shape := []int{x.Shape[0], x.Shape[1], s.Shape[2]}
	return t.one(opReadState, kernels.Attr{}, x.DType, shape, x.Place, x, s, nil)
}

// readStateVJP is the gradient of reading a state s by rows x, head by head: two products like those of a linear layer.
func readStateVJP(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
	g, x, s := make([]*Value, 3), n.In[0], n.In[1]
	if leg(0) {
		d := t.to(dy[0], x.Place)
		g[0] = t.one(opHeadLinear, kernels.Attr{}, x.DType, x.Shape, x.Place, d, s, nil)
	}
	if leg(1) {
		d := t.to(dy[0], x.Place)
		g[1] = t.asType(t.one(opGroupedDW, kernels.Attr{}, tensor.F32, s.Shape, s.Place, x, d, nil), s.DType)
	}
	return g
}

// swap exchanges the first two axes of x.
func (t *Tape) swap(x *Value) *Value {
	shape, p := append([]int(nil), x.Shape...), x.Place
	shape[0], shape[1] = shape[1], shape[0]
	for m := range p {
		if p[m].Kind == Sharded && p[m].Axis < 2 {
			p[m].Axis = 1 - p[m].Axis
		}
	}
	return t.one(opSwap, kernels.Attr{}, x.DType, shape, p, x)
}

// swap joins the columns of the second axis.
func (r *Runner) swap(f *Frame, n *Node) {
	in, out := r.operand(f, n, n.In[0]), r.alloc(n.Out[0])
	var parts []*tensor.Tensor
	for i := range in.Shape[1] {
		s := r.section(in, 1, i, in.Shape[1])
		parts = append(parts, s.Alias(append([]int{1, in.Shape[0]}, in.Shape[2:]...)...))
		s.Release()
	}
	r.run(kernels.Concat, kernels.Attr{}, parts, out)
	for _, p := range parts {
		p.Release()
	}
	f.slots[n.Out[0].ID] = out
}

// zeros is a value of zeros.
func (t *Tape) zeros(d tensor.DType, shape []int, p Place) *Value {
	return t.one(opFill, kernels.Attr{}, d, shape, p)
}
