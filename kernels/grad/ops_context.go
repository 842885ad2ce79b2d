package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Context parallelism shares out the rows of sequences over mesh axes. Only attention needs more than its
// own rows: it gathers the keys and values of all members, or has them go round (ring attention,
// arXiv:2310.01889), or exchanges rows for heads (arXiv:2309.14509).

// sharing is how the rows of an attention's queries are shared out over the members along some axes.
// In the words of the field: Ulysses, head exchange.
type sharing struct {
	axes    []int
	members int
	// runs of rows of a member: with two, member r of n has piece r and piece 2n-1-r of a sequence that is cut into 2n
	pieces int
	ring   bool
	// rows of earlier chunks that queries may see, and the number of those chunks
	before, earlier int
}

// piece is the place in the sequence of the j-th piece of a member.
func (x *sharing) piece(member, j int) int {
	if j > 0 {
		return 2*x.members - 1 - member
	}
	return member
}

// cutOf says which rows of packed sequences a node's borders are of.
type cutOf struct {
	*sharing
	query  int // piece of the member's queries
	key    int // piece of keys, -1 for all rows
	behind int // of the member so many places before
	from   int // the first row of the keys of a chunk, counted from that of the keys of all
	keys   int // rows of a piece of keys, if they are not as many as those of queries
	// every query sees all keys of its sequence: borders are of queries that are cut already, so that no keys
	// behind the last of them are lost
	whole bool
}

// rows sets the attributes of cut_sequences and cut_parts on a member: n rows a piece.
func (c *cutOf) rows(member, n int) (at [4]int) {
	if c.whole {
		return [4]int{0, n}
	}
	at = [4]int{c.piece(member, c.query) * n, n}
	if c.key >= 0 {
		from := ((member-c.behind)%c.members + c.members) % c.members
		if c.keys > 0 {
			n = c.keys
		}
		at[2], at[3] = c.from+c.piece(from, c.key)*n, n
	}
	return at
}

var opCutSequences, opCutParts, opAttnPart, opAttnPartBwd, opAttnMerge, opRotate, opPiece, opNatural *Op

func init() {
	opCutSequences = &Op{Name: "cut_sequences", Kernel: kernels.CutSequences, Cheap: true}
	opCutParts = &Op{Name: "cut_parts", Kernel: kernels.CutParts, Cheap: true}
	opAttnPart = &Op{Name: "attention_part", Kernel: kernels.AttentionPart}
	opAttnPartBwd = &Op{Name: "attention_part_bwd", Kernel: kernels.AttentionPartBwd}
	opAttnMerge = &Op{Name: "attention_merge", Kernel: kernels.AttentionMerge}
	opRotate = &Op{Name: "rotate", Role: rotate}
	opPiece = &Op{Name: "piece", Role: piece}
	opNatural = &Op{
		Name:  "natural",
		Role:  natural,
		Cheap: true,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			if !leg(0) {
				return []*Value{nil}
			}
			d := t.to(dy[0], n.Out[0].Place)
			return []*Value{
				t.one(opNatural, kernels.Attr{I: [4]int{n.Attr.I[0], 1 - n.Attr.I[1]}}, d.DType, d.Shape, d.Place, d),
			}
		},
	}
}

// dealt is the number of members that rows of tokens are dealt out to in two pieces each, 0 where they lie in order.
func (o *Options) dealt() int {
	for _, a := range o.Mesh {
		if a.Zigzag && a.Size > 1 {
			return a.Size
		}
	}
	return 0
}

// natural puts rows of tokens, all of them on every member, in the order of the sequence, if they are dealt
// out in pieces.
func (t *Tape) natural(v *Value) *Value { return t.reorder(v, 0) }

// deal is the inverse of natural.
func (t *Tape) deal(v *Value) *Value { return t.reorder(v, 1) }

// reorder brings the rows of a sequence that is dealt out in zigzag to their natural order, or with
// back 1 to the dealt one. A sequence that is not dealt out stays as it is.
func (t *Tape) reorder(v *Value, back int) *Value {
	n := t.dealt()
	if n == 0 {
		return v
	}
	return t.one(opNatural, kernels.Attr{I: [4]int{n, back}}, v.DType, v.Shape, v.Place, v)
}

// OwnTokens brings a value with a row a token, which every member has in whole, to the rows that each has
// of the residual stream along the axes of context parallelism, if they divide.
func (t *Tape) OwnTokens(v *Value) *Value {
	p, n := v.Place, v.Shape[0]
	for m, a := range t.Mesh {
		if a.Context && a.Size > 1 && p[m].Kind == Replicated && n%a.Size == 0 {
			p[m], n = Part{Sharded, 0}, n/a.Size
		}
	}
	return t.to(v, p)
}

// WholeWidth gathers all but the rows that context parallelism shares out: for what mixes the other axis.
func (t *Tape) WholeWidth(v *Value) *Value {
	p := v.Place
	for m := range p {
		if m >= len(t.Mesh) || !t.Mesh[m].Context || p[m] != (Part{Sharded, 0}) {
			p[m] = Part{}
		}
	}
	return t.to(v, p)
}

// exchange brings heads of v [t h d] together with all rows along the axes that exchange them. Heads that
// do not divide stay as they are.
func (t *Tape) exchange(v *Value) *Value {
	p, n := v.Place, t.Members(v.Place.Cuts(1))
	for m, a := range t.Mesh {
		if a.Exchange && v.Place[m] == (Part{Sharded, 0}) && v.Shape[1]%(n*a.Size) == 0 {
			p[m], n = Part{Sharded, 1}, n*a.Size
		}
	}
	return t.to(v, p)
}

// restore is the inverse of exchange for what has heads of v.
func (t *Tape) restore(v *Value) *Value {
	p := v.Place
	for m, a := range t.Mesh {
		if a.Exchange && p[m] == (Part{Sharded, 1}) {
			p[m] = Part{Sharded, 0}
		}
	}
	return t.to(v, p)
}

// sharing is how the queries of an attention stay shared out by rows, nil for not at all: over all axes on
// which they are, if each is for context parallelism and what a query sees is told by borders alone.
func (t *Tape) sharing(q, k *Value, c AttentionConfig) *sharing {
	x := &sharing{axes: q.Place.Cuts(0), pieces: 1}
	x.members = t.Members(x.axes)
	for _, m := range x.axes {
		a := t.Mesh[m]
		if !a.Context || a.Exchange || (a.Zigzag || a.Ring) && len(x.axes) > 1 {
			return nil
		}
		x.ring = a.Ring && (t.Chunks == 1 || c.Carry != "") && (c.Causal || k.Shape[0] == q.Shape[0])
		if a.Zigzag && c.Tokens {
			x.pieces = 2
		}
	}
	if c.Blocks != nil || c.Near != nil || q.Shape[0]%(x.members*x.pieces) != 0 {
		return nil
	}
	if !c.Causal && (len(x.axes) == 0 || x.pieces > 1 || c.Window > 0 || c.Tile > 0 || c.Carry != "") {
		return nil
	}
	if len(x.axes) == 0 { // alone, with the chunks that a window reaches
		if c.Carry == "" || t.dealt() > 0 || t.reach(c.Window, q.Shape[0]) >= t.Chunks-1 {
			return nil
		}
		x.ring = true
	}
	if x.ring && c.Carry != "" {
		x.earlier = min(t.Chunk, t.reach(c.Window, q.Shape[0]))
		x.before = t.Chunk * q.Shape[0]
	}
	return x
}

// reach is the number of chunks of so many rows behind its own that a window lets a query see.
func (t *Tape) reach(window, rows int) int {
	if window == 0 {
		return t.Chunks - 1
	}
	return min(t.Chunks-1, (window-1+rows-1)/rows)
}

// borders gives those of a piece of this member's queries, and of the keys that they may see.
func (t *Tape) borders(cuQ, cuK *Value, rows int, c cutOf) []*Value {
	for _, have := range t.cuts {
		if have.In[0] == cuQ && have.In[1] == cuK && have.cut.query == c.query && have.cut.key == c.key &&
			have.cut.behind == c.behind && have.cut.pieces == c.pieces && have.cut.whole == c.whole &&
			have.cut.from == c.from && have.cut.keys == c.keys && slices.Equal(have.Axes, c.axes) &&
			have.Attr.I[1] == rows {
			return have.Out
		}
	}
	s := spec{cuQ.Shape, tensor.I32, Place{}}
	op, out := opCutSequences, []spec{s, s}
	if c.key >= 0 {
		op, out = opCutParts, append(out, spec{[]int{cuQ.Shape[0] - 1}, tensor.I32, Place{}})
	}
	n := t.emit(op, kernels.Attr{I: [4]int{0, rows}}, []*Value{cuQ, cuK}, out...)
	n.Axes, n.cut = c.axes, &c
	t.cuts = append(t.cuts, n)
	return n.Out
}

// split gives the pieces that each member has of v, as views.
func (t *Tape) split(v *Value, x *sharing) []*Value {
	if x.pieces == 1 {
		return []*Value{v}
	}
	out := make([]*Value, x.pieces)
	for j := range out {
		shape := slices.Clone(v.Shape)
		shape[0] /= x.pieces
		out[j] = t.one(opPiece, kernels.Attr{I: [4]int{j}}, v.DType, shape, v.Place, v)
	}
	return out
}

// stack joins pieces to what each member has of the whole, shaped like v.
func (t *Tape) stack(op *Op, v *Value, in []*Value, parts int) *Value {
	n := t.emit(op, kernels.Attr{I: [4]int{parts}}, in, spec{v.Shape, in[0].DType, v.Place})
	return n.Out[0]
}

var opStack = &Op{Name: "stack", Role: stack}

// rotate gives every member what the one so many places before it along the axes has.
func (t *Tape) rotate(v *Value, x *sharing, by int) *Value {
	r := t.one(opRotate, kernels.Attr{I: [4]int{by}}, v.DType, v.Shape, v.Place, v)
	r.Node.Axes = x.axes
	return r
}

// Shift is how many places along its axes a rotation moves values, 0 for any other node.
func (n *Node) Shift() int {
	if n.Op.Role != rotate {
		return 0
	}
	return n.Attr.I[0]
}

// Apart reports whether the members of a communication each get a part of their own: rows for their experts,
// and another way of sharing a value out.
func (n *Node) Apart() bool {
	switch n.Op.Role {
	case dispatch, combine:
		return true
	case convert:
		a := n.Axes[0]
		return n.In[0].Place[a].Kind == Sharded && n.Out[0].Place[a].Kind == Sharded
	}
	return false
}

// sum adds values of one placement up in one call.
func (t *Tape) sum(vs []*Value) *Value {
	if len(vs) == 1 {
		return vs[0]
	}
	return t.one(opSum, kernels.Attr{}, vs[0].DType, vs[0].Shape, vs[0].Place, vs...)
}

// shared is the attention of queries that members have in pieces.
type shared struct {
	*sharing
	at kernels.Attr
	// q and, with a ring, k and v hold each member's rows; else k and v hold all rows in order
	q, k, v *Value
	cuQ     *Value
	cuK     *Value
	sink    *Value    // logits of heads that belong to no key, or nil
	earlier []keyPart // keys and values of earlier chunks, the oldest first
	qs      []*Value  // pieces
	lse     []*Value  // of each piece
}

// attend records the forward; the gradient is that of the last node, which joins the pieces.
func (t *Tape) attend(s *shared) *Value {
	s.qs, s.lse = t.split(s.q, s.sharing), make([]*Value, s.pieces)
	var o []*Value
	if s.ring {
		o = t.attendRing(s)
	} else {
		o = t.attendAll(s)
	}
	in := []*Value{s.q, s.k, s.v}
	if s.sink != nil {
		in = append(in, s.sink)
		for j := range o {
			n := t.sunk(s.at, o[j], s.lse[j], s.sink, nil)
			o[j], s.lse[j] = n.Out[0], n.Out[1]
		}
	}
	for _, e := range s.earlier {
		in = append(in, e.k, e.v)
	}
	join := &Op{
		Name: "stack",
		Role: stack,
		VJP: func(t *Tape, n *Node, dy []*Value, leg func(int) bool) []*Value {
			g := make([]*Value, len(n.In))
			d := t.to(dy[0], n.Out[0].Place)
			if leg(s.pieces) || leg(s.pieces+1) || leg(s.pieces+2) {
				t.phase = I
				got := t.attendBwd(s, n.Out[0], d)
				copy(g[s.pieces:], got[:3])
				copy(g[len(g)-len(got[3:]):], got[3:])
			}
			if s.sink != nil && leg(s.pieces+3) {
				g[s.pieces+3] = t.sinkGrads(s, n.Out[0], d)
			}
			return g
		},
	}
	return t.stack(join, &Value{Shape: []int{s.q.Shape[0], s.q.Shape[1], s.v.Shape[2]}, Place: s.q.Place},
		append(o, in...), s.pieces)
}

// results are those of attention to some keys by a piece of queries.
func (s *shared) results(q *Value, d tensor.DType) []spec {
	return []spec{
		{[]int{q.Shape[0], q.Shape[1], s.v.Shape[2]}, d, q.Place},
		{q.Shape[:2], tensor.F32, q.Place},
	}
}

// allKeys are the operands of attention by a piece of queries to all keys.
func (t *Tape) allKeys(s *shared, j int) []*Value {
	rows := s.q.Shape[0] / (s.members * s.pieces)
	b := t.borders(s.cuQ, s.cuK, rows, cutOf{sharing: s.sharing, query: j, key: -1})
	if s.at.I[0] == 0 { // not causal
		b = []*Value{b[0], t.borders(b[0], s.cuK, rows, cutOf{sharing: s.sharing, query: j, key: -1, whole: true})[1]}
	}
	return []*Value{s.qs[j], s.k, s.v, b[0], b[1]}
}

// attendAll is attention to all keys, gathered, by each piece of queries.
func (t *Tape) attendAll(s *shared) (o []*Value) {
	for j, q := range s.qs {
		n := t.emit(opAttnKept, s.at, t.allKeys(s, j), s.results(q, q.DType)...)
		n.cut = &cutOf{sharing: s.sharing, query: j, key: -1}
		o, s.lse[j] = append(o, n.Out[0]), n.Out[1]
	}
	return o
}

// opAttnKept is attention whose gradient is recorded elsewhere.
var opAttnKept = &Op{Name: "attention", Kernel: kernels.Attention}

// sinkGrads is the gradient of logits of heads by all pieces; o is the joined result and d its cotangent.
func (t *Tape) sinkGrads(s *shared, o, d *Value) *Value {
	ds, os := t.split(d, s.sharing), t.split(o, s.sharing)
	var sums []*Value
	for j := range ds {
		sums = append(sums, t.sinkGrad(ds[j], os[j], s.lse[j], s.sink))
	}
	return t.sum(sums)
}

// attendBwd gives the cotangents of queries, keys and values; o is the joined result.
func (t *Tape) attendBwd(s *shared, o, d *Value) []*Value {
	ds, os := t.split(d, s.sharing), t.split(o, s.sharing)
	if s.ring {
		return t.ringBwd(s, os, ds)
	}
	sums := s.k.Place
	for _, m := range s.axes { // each member's queries see some of the keys
		sums[m] = Part{Kind: Partial}
	}
	var dq, dk, dv []*Value
	for j, q := range s.qs {
		in := t.allKeys(s, j)
		n := t.emit(opAttnBwd, s.at, append([]*Value{ds[j], q, s.k, s.v, os[j], s.lse[j]}, in[3:]...), spec{
			q.Shape,
			q.DType,
			q.Place,
		}, spec{s.k.Shape, s.k.DType, sums}, spec{s.v.Shape, s.v.DType, sums})
		n.cut = &cutOf{sharing: s.sharing, query: j, key: -1}
		dq, dk, dv = append(dq, n.Out[0]), append(dk, n.Out[1]), append(dv, n.Out[2])
	}
	return []*Value{t.joined(s.q, dq), t.sum(dk), t.sum(dv)}
}

// joined is stack where there is something to join.
func (t *Tape) joined(v *Value, parts []*Value) *Value {
	if len(parts) == 1 {
		return parts[0]
	}
	return t.stack(opStack, v, parts, len(parts))
}
