package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Ring attention: keys and values go round the members, and each computes with what it has while the next
// is on its way. A sequence that is dealt out in two pieces has as many pairs of queries and keys on every
// member at every turn (arXiv:2311.09431).

// keyPart is the keys and values of a chunk, of which each member has its rows: those from the row from on,
// counted over the keys of all chunks.
type keyPart struct {
	k, v *Value
	from int
	own  bool // the chunk of the queries
}

// parts are those of all chunks whose keys queries may see, their own as the last.
func (s *shared) parts() []keyPart {
	return append(slices.Clone(s.earlier), keyPart{s.k, s.v, s.before, true})
}

// carryParts hands this chunk's keys and values on to those later ones that see them, and gives those of
// earlier ones, as they lie on members. Of keys that only the next chunk sees, it hands on as many as the
// window reaches, so that the others are dropped with their chunk's activations.
func (t *Tape) carryParts(s *shared, name string) (out []keyPart) {
	rows, window := s.k.Shape[0], s.at.I[1]
	reach, tail := t.reach(window, rows), rows
	if reach == 1 && s.members == 1 {
		tail = min(rows, window-1)
	}
	k, v := t.tail(s.k, tail), t.tail(s.v, tail)
	for c := t.Chunk - s.sharing.earlier; c < t.Chunk; c++ {
		e := keyPart{from: (c+1)*rows - tail}
		for _, x := range []struct {
			to   **Value
			like *Value
			name string
		}{{&e.k, k, name + ".k"}, {&e.v, v, name + ".v"}} {
			im := t.one(opImport, kernels.Attr{Name: x.name, I: [4]int{c}}, x.like.DType, x.like.Shape, x.like.Place)
			im.Need, im.Name = x.like.Need, x.name
			*x.to = im
		}
		out = append(out, e)
	}
	if readers := min(reach, t.Chunks-1-t.Chunk); readers > 0 {
		for i, x := range []*Value{k, v} {
			x.Exported = true
			at := kernels.Attr{Name: name + []string{".k", ".v"}[i], I: [4]int{readers}}
			t.emit(opExport, at, []*Value{x})
		}
	}
	return out
}

// tail is the last n rows of v.
func (t *Tape) tail(v *Value, n int) *Value {
	if n == v.Shape[0] {
		return v
	}
	shape := append([]int{n}, v.Shape[1:]...)
	return t.one(opColumns, kernels.Attr{I: [4]int{0, v.Shape[0] - n}}, v.DType, shape, v.Place, v)
}

// lap is one turn of the ring: the keys and values of the member so many places before.
type lap struct {
	keyPart
	turn int
}

// laps calls f for every turn of a part. What the next one needs is sent before, so that it travels behind
// what f records.
func (t *Tape) laps(s *shared, p keyPart, f func(l lap)) {
	l := lap{keyPart: p}
	for {
		next := lap{keyPart: keyPart{from: p.from, own: p.own}, turn: l.turn + 1}
		if next.turn < s.members {
			next.k, next.v = t.rotate(l.k, s.sharing, 1), t.rotate(l.v, s.sharing, 1)
		}
		f(l)
		if next.turn == s.members {
			return
		}
		l = next
	}
}

// pair is a piece of queries with a piece of keys of one turn.
type pair struct {
	query, key int
	in         []*Value // queries, keys, values, borders
	cut        *cutOf
}

// pairs lists those of a turn that any member has work for: of its own pieces of the chunk, the second lies
// behind all queries of the first.
func (t *Tape) pairs(s *shared, l lap) (out []pair) {
	ks, vs := t.split(l.k, s.sharing), t.split(l.v, s.sharing)
	rows := s.q.Shape[0] / (s.members * s.pieces)
	for j := range s.qs {
		for i := range ks {
			if l.own && l.turn == 0 && i > j {
				continue
			}
			c := cutOf{sharing: s.sharing, query: j, key: i, behind: l.turn, from: l.from}
			if n := l.k.Shape[0] / (s.members * s.pieces); n != rows {
				c.keys = n
			}
			b := t.borders(s.cuQ, s.cuK, rows, c)
			out = append(out, pair{j, i, []*Value{s.qs[j], ks[i], vs[i], b[0], b[1], b[2]}, &c})
		}
	}
	return out
}

// attendRing is attention to each turn's keys, merged in order of turns.
func (t *Tape) attendRing(s *shared) []*Value {
	o, left := make([]*Value, s.pieces), make([]int, s.pieces)
	for j := range left {
		left[j] = (len(s.earlier)+1)*s.members*s.pieces - (s.pieces - 1 - j)
	}
	each := func(l lap) {
		for _, p := range t.pairs(s, l) {
			j, q := p.query, s.qs[p.query]
			n := t.emit(opAttnPart, s.at, p.in, s.results(q, q.DType)...)
			n.cut = p.cut
			left[j]--
			if o[j] == nil {
				o[j], s.lse[j] = n.Out[0], n.Out[1]
				continue
			}
			d := tensor.F32 // of a sum that is not complete
			if left[j] == 0 {
				d = q.DType
			}
			m := t.emit(opAttnMerge, s.at, []*Value{o[j], s.lse[j], n.Out[0], n.Out[1]}, s.results(q, d)...)
			o[j], s.lse[j] = m.Out[0], m.Out[1]
		}
	}
	for _, p := range s.parts() {
		t.laps(s, p, each)
	}
	return o
}

// ringBwd sends keys and values round once more. The gradients of a turn's keys go straight home, behind
// the next turn's work.
func (t *Tape) ringBwd(s *shared, o, d []*Value) []*Value {
	dq := make([]*Value, s.pieces)
	var own, earlier []*Value
	for _, p := range s.parts() {
		if g := t.partBwd(s, p, o, d, dq); p.own {
			own = g
		} else {
			earlier = append(earlier, g...)
		}
	}
	for j := range dq {
		dq[j] = t.asType(dq[j], s.q.DType)
	}
	return append(append([]*Value{t.joined(s.q, dq)}, own...), earlier...)
}

// partBwd adds the gradients of queries through one part of the keys to dq, and gives those of the part.
func (t *Tape) partBwd(s *shared, of keyPart, o, d, dq []*Value) []*Value {
	var dk, dv, lastK, lastV *Value
	t.laps(s, of, func(l lap) {
		gk, gv := make([][]*Value, s.pieces), make([][]*Value, s.pieces)
		for _, p := range t.pairs(s, l) {
			j := p.query
			q, k, v := p.in[0], p.in[1], p.in[2]
			n := t.emit(opAttnPartBwd, s.at, append([]*Value{d[j], q, k, v, o[j], s.lse[j]}, p.in[3:]...), spec{
				q.Shape,
				q.DType,
				q.Place,
			}, spec{k.Shape, k.DType, k.Place}, spec{v.Shape, v.DType, v.Place})
			n.cut = p.cut
			dq[j] = t.total(dq[j], n.Out[0])
			gk[p.key], gv[p.key] = append(gk[p.key], n.Out[1]), append(gv[p.key], n.Out[2])
		}
		if l.turn > 0 {
			dk, dv = t.total(dk, lastK), t.total(dv, lastV)
		}
		lastK, lastV = t.joined(of.k, t.sums(gk)), t.joined(of.v, t.sums(gv))
		if l.turn > 0 {
			lastK, lastV = t.rotate(lastK, s.sharing, -l.turn), t.rotate(lastV, s.sharing, -l.turn)
		}
	})
	return []*Value{
		t.asType(t.total(dk, lastK), of.k.DType),
		t.asType(t.total(dv, lastV), of.v.DType),
	}
}

// total adds v to a sum in float32, nil for the first.
func (t *Tape) total(sum, v *Value) *Value {
	v = t.asType(v, tensor.F32)
	if sum == nil {
		return v
	}
	return t.sum([]*Value{sum, v})
}

// asType is v in another dtype.
func (t *Tape) asType(v *Value, d tensor.DType) *Value {
	if v.DType == d {
		return v
	}
	return t.one(opCast, kernels.Attr{}, d, v.Shape, v.Place, v)
}

// sums adds each list up.
func (t *Tape) sums(vs [][]*Value) []*Value {
	out := make([]*Value, len(vs))
	for i, l := range vs {
		out[i] = t.sum(l)
	}
	return out
}
