package grad

import (
	"math"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// What an operation carries from each token to the next goes from chunk to chunk of a sequence as rows of its operands,
// so that no kernel knows of chunks: a convolution gets the rows before it, and the delta rule its state as tokens. A
// state S [d e] is what d tokens with the unit vectors as keys and S's rows as values leave behind, if each is written
// whole and nothing is forgotten meanwhile; and d tokens that write nothing read it, with the unit vectors as queries.
// Borders say whether the first of a chunk's sequences goes on with these rows (StateBorders).

// DeltaBorders and ConvBorders are the data that cut a chunk's rows, with those of its states, into sequences.
const (
	DeltaBorders = "cu_states"
	ConvBorders  = "cu_conv"
)

// unit is the length of keys and queries that carry states: rounding of the root over it leaves 1.
const unit = 1024

// StateBorders are the borders cu of a microbatch's sequences for the rows [from, from+rows) of a chunk
// behind so many rows of the state before and in front of so many of the one after. Those before may be
// tokens, in which a sequence may begin.
func StateBorders(cu []int32, from, rows, before, after int, tokens bool) (out []int32) {
	for _, at := range cu {
		switch n := int(at) - from; {
		case n < 0 && tokens:
			out = append(out, int32(max(0, before+n)))
		case n < 0: // its first sequence goes on
			out = append(out, 0)
		case n >= rows:
			out = append(out, int32(before+rows+after))
		default:
			out = append(out, int32(before+n))
		}
	}
	return out
}

// before is what the chunk before has passed on under a name, nil in the first.
func (t *Tape) before(name string, like *Value, need bool, shape ...int) *Value {
	if t.Chunk == 0 {
		return nil
	}
	v := t.one(opImport, kernels.Attr{Name: name, I: [4]int{t.Chunk - 1}}, like.DType, shape, like.Place)
	v.Need, v.Name = need, name
	return v
}

// pass hands v on to the next chunk, if there is one.
func (t *Tape) pass(name string, v *Value) {
	v.Exported = true
	t.emit(opExport, kernels.Attr{Name: name, I: [4]int{1}}, []*Value{v})
}

// more reports whether a chunk follows.
func (t *Tape) more() bool { return t.Chunk < t.Chunks-1 }

// someRows is rows [from, from+n) of x.
func (t *Tape) someRows(x *Value, from, n int) *Value {
	idx := make([]int32, n)
	for i := range idx {
		idx[i] = int32(from + i)
	}
	return t.Take(x, t.ConstI32("rows", idx))
}

// constant is a tensor of so many rows that is otherwise like another.
func (t *Tape) constant(name string, like *Value, rows int, at func(i, last int) float32) *Value {
	shape := append([]int{rows}, like.Shape[1:]...)
	v, width := make([]float32, tensor.Len(shape)), tensor.Len(shape[1:])
	last := shape[len(shape)-1]
	for i := range v {
		v[i] = at(i/width, i%last)
	}
	return t.to(t.constOf(name, like.DType, v, shape...), like.Place)
}

// ConvChunk is CausalConv of a chunk, which goes on where the chunk before has ended: by name.
func (t *Tape) ConvChunk(name string, x, w *Value) *Value {
	x = t.only(x, 1)
	halo := w.Shape[1] - 1
	cu, rows := t.Data(ConvBorders, tensor.I32, 2), x.Shape[0]
	past := t.before(name, x, x.Need, halo, x.Shape[1])
	if t.more() {
		t.pass(name, t.someRows(x, rows-halo, halo))
	}
	if past == nil {
		return t.CausalConv(x, w, cu)
	}
	return t.someRows(t.CausalConv(t.Concat(0, past, x), w, cu), halo, rows)
}

// DeltaChunk is DeltaRule of a chunk, which goes on from the state of the chunk before: by name.
func (t *Tape) DeltaChunk(name string, q, k, v, g, beta *Value, eps float64) *Value {
	q = t.only(q, 1)
	k, v = t.to(k, q.Place), t.to(v, q.Place)
	g, beta = t.to(g, q.Place), t.to(beta, q.Place)
	rows, d, first := v.Shape[0], q.Shape[2], 0
	none := func(int, int) float32 { return 0 }
	units := func(i, last int) float32 {
		if i == last {
			return unit
		}
		return 0
	}
	need := q.Need || k.Need || v.Need || g.Need || beta.Need
	if s := t.before(name, v, need, d, v.Shape[1], v.Shape[2]); s != nil {
		first = d
		q = t.Concat(0, t.constant("no query", q, d, none), q)
		k = t.Concat(0, t.constant("units", k, d, units), k)
		v = t.Concat(0, s, v)
		g = t.Concat(0, t.constant("kept", g, d, none), g)
		beta = t.Concat(0, t.constant("written", beta, d, func(int, int) float32 { return 1 }), beta)
	}
	if t.more() {
		q = t.Concat(0, q, t.constant("units", q, d, units))
		k = t.Concat(0, k, t.constant("no key", k, d, units))
		v = t.Concat(0, v, t.constant("no value", v, d, none))
		g = t.Concat(0, g, t.constant("kept", g, d, none))
		beta = t.Concat(0, beta, t.constant("not written", beta, d, none))
	}
	o := t.DeltaRule(q, k, v, g, beta, t.Data(DeltaBorders, tensor.I32, 2), eps)
	if t.more() {
		t.pass(name, t.Scale(t.someRows(o, first+rows, d), math.Sqrt(float64(d))))
	}
	return t.someRows(o, first, rows)
}
