package grad

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Ring attention: keys and values go round the members, and each computes with what it has while the next
// is on its way. A sequence that is dealt out in two pieces has as many pairs of queries and keys on every
// member at every turn (arXiv:2311.09431).

// lap is one turn of the ring: the keys and values of the member so many places before.
type lap struct {
	turn int
	k, v *Value
}

// laps calls f for every turn. What the next one needs is sent before, so that it travels behind what f
// records.
func (t *Tape) laps(s *shared, f func(l lap)) {
	l := lap{0, s.k, s.v}
	for {
		next := lap{turn: l.turn + 1}
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
}

// pairs lists those of a turn that any member has work for: of its own pieces, the second lies behind all
// queries of the first.
func (t *Tape) pairs(s *shared, l lap) (out []pair) {
	ks, vs := t.split(l.k, s.sharing), t.split(l.v, s.sharing)
	rows := s.q.Shape[0] / (s.members * s.pieces)
	for j := range s.qs {
		for i := range ks {
			if l.turn == 0 && i > j {
				continue
			}
			b := t.borders(s.cuQ, s.cuK, rows, cutOf{sharing: s.sharing, query: j, key: i, behind: l.turn})
			out = append(out, pair{j, i, []*Value{s.qs[j], ks[i], vs[i], b[0], b[1], b[2]}})
		}
	}
	return out
}

// attendRing is attention to each turn's keys, merged in order of turns.
func (t *Tape) attendRing(s *shared) []*Value {
	o, left := make([]*Value, s.pieces), make([]int, s.pieces)
	for j := range left {
		left[j] = s.members*s.pieces - (s.pieces - 1 - j)
	}
	t.laps(s, func(l lap) {
		for _, p := range t.pairs(s, l) {
			j, q := p.query, s.qs[p.query]
			n := t.emit(opAttnPart, s.at, p.in, s.results(q, q.DType)...)
			n.cut = &cutOf{sharing: s.sharing, query: j, key: p.key, behind: l.turn}
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
	})
	return o
}

// ringBwd sends keys and values round once more. The gradients of a turn's keys go straight home, behind
// the next turn's work.
func (t *Tape) ringBwd(s *shared, o, d []*Value) []*Value {
	dq := make([]*Value, s.pieces)
	var dk, dv, lastK, lastV *Value
	t.laps(s, func(l lap) {
		gk, gv := make([][]*Value, s.pieces), make([][]*Value, s.pieces)
		for _, p := range t.pairs(s, l) {
			j := p.query
			q, k, v := p.in[0], p.in[1], p.in[2]
			n := t.emit(
				opAttnPartBwd,
				s.at,
				append([]*Value{d[j], q, k, v, o[j], s.lse[j]}, p.in[3:]...),
				spec{
					q.Shape,
					q.DType,
					q.Place,
				},
				spec{k.Shape, k.DType, k.Place},
				spec{v.Shape, v.DType, v.Place},
			)
			n.cut = &cutOf{sharing: s.sharing, query: j, key: p.key, behind: l.turn}
			dq[j] = t.total(dq[j], n.Out[0])
			gk[p.key], gv[p.key] = append(gk[p.key], n.Out[1]), append(gv[p.key], n.Out[2])
		}
		if l.turn > 0 {
			dk, dv = t.total(dk, lastK), t.total(dv, lastV)
		}
		lastK, lastV = t.joined(s.k, t.sums(gk)), t.joined(s.v, t.sums(gv))
		if l.turn > 0 {
			lastK, lastV = t.rotate(lastK, s.sharing, -l.turn), t.rotate(lastV, s.sharing, -l.turn)
		}
	})
	for j := range dq {
		dq[j] = t.asType(dq[j], s.q.DType)
	}
	return []*Value{
		t.joined(s.q, dq),
		t.asType(t.total(dk, lastK), s.k.DType),
		t.asType(t.total(dv, lastV), s.v.DType),
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
