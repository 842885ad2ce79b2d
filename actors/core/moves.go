package core

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// Experts move between ranks in steps whose number says so: their weights and the state of their optimizer
// change places behind the update. Where they go is part of the Commit, so that all ranks agree, and follows
// from the rows that experts had since the last move. A step that moves experts cannot be finished by each
// rank alone, and a rank that has moved cannot go back by itself: if one is lost before all have ended the
// step, everybody goes to an older state, and lets experts lie as they did in that.

// Placed says where the experts of a layer lie: by place, the expert. Places of one rank are neighbours, and
// a busy expert may lie at several.
type Placed struct {
	Block  int // of the model
	Expert []int
}

// AppendPlaced writes where experts lie as numbers, behind a verdict.
func AppendPlaced(v []float64, ps ...Placed) []float64 {
	for _, p := range ps {
		v = append(v, float64(p.Block), float64(len(p.Expert)))
		for _, e := range p.Expert {
			v = append(v, float64(e))
		}
	}
	return v
}

// Moves reads from a Commit's values where experts are to go; nil is nowhere.
func Moves(verdict []float64) []Placed { return Placements(verdict[min(len(verdict), CommitLen):]) }

// Placements reads what AppendPlaced has written.
func Placements(v []float64) (out []Placed) {
	for len(v) > 0 {
		p := Placed{Block: int(v[0])}
		n := int(v[1])
		for _, e := range v[2 : 2+n] {
			p.Expert = append(p.Expert, int(e))
		}
		out, v = append(out, p), v[2+n:]
	}
	return out
}

// ExpertNorms are the squared norms of a parameter's gradient by expert, as far as a rank has them. Each is
// a number of its own, summed in order of experts, so that the norm of all gradients does not depend on
// where experts lie.
type ExpertNorms struct {
	Param   int // as in RunLayout.Norms
	Experts []int
	Squares []float64
}

// AppendExpertNorms writes norms of experts as numbers, behind those of RunLayout.Norms. There may be none.
func AppendExpertNorms(v []float64, ns []ExpertNorms) []float64 {
	v = append(v, float64(len(ns)))
	for _, n := range ns {
		v = append(v, float64(n.Param), float64(len(n.Experts)))
		for i, e := range n.Experts {
			v = append(v, float64(e), n.Squares[i])
		}
	}
	return v
}

// expertNorms reads what AppendExpertNorms has written; what is left are loads. A rank that has no experts
// may have written nothing. It reports false where the numbers are cut short.
func expertNorms(v []float64) (out []ExpertNorms, loads []float64, ok bool) {
	if len(v) == 0 {
		return nil, nil, true
	}
	left := int(v[0])
	for v = v[1:]; left > 0; left-- {
		if len(v) < 2 || len(v) < 2+2*int(v[1]) {
			return nil, nil, false
		}
		x := ExpertNorms{Param: int(v[0])}
		rows := v[2 : 2+2*int(v[1])]
		for i := 0; i < len(rows); i += 2 {
			x.Experts, x.Squares = append(x.Experts, int(rows[i])), append(x.Squares, rows[i+1])
		}
		out, v = append(out, x), v[2+len(rows):]
	}
	return out, v, true
}

// mover is what the coordinator knows of experts that move.
type mover struct {
	now     Laid // of the state that all ranks hold
	next    Laid // of the step under way, once it is decided
	copying Laid // of the copies in memory that are being made, and of those that are whole
	copied  Laid
	saving  Laid // of the checkpoint that is being written, and of the newest durable one
	durable Laid
	step    []Load // of the step under way
}

// Laid says where experts lie behind a step, and what is known of their use then.
type Laid struct {
	At    []Placed // layers that are not listed lie in order
	Loads []Load   // since the last move
}

// AppendLaid writes it as numbers, none where no expert has moved and nothing is known.
func AppendLaid(v []float64, x Laid) []float64 {
	if len(x.At) == 0 && len(x.Loads) == 0 {
		return v
	}
	at := AppendPlaced(nil, x.At...)
	v = append(append(v, float64(len(at))), at...)
	for _, l := range x.Loads {
		v = AppendLoad(v, l)
	}
	return v
}

// LaidOf reads what AppendLaid has written.
func LaidOf(v []float64) (x Laid) {
	if len(v) > 0 {
		n := 1 + int(v[0])
		x.At, x.Loads = Placements(v[1:n]), Loads(v[n:])
	}
	return x
}

// readiness checks what a rank says behind its values when it is ready.
func (c *Coordinator) readiness(i int, v []float64) {
	n := ClosedLen + len(c.l.Norms[i])
	if len(v) >= n {
		if _, _, ok := expertNorms(v[n:]); ok {
			return
		}
	}
	panic(fmt.Sprintf("core: rank %d reports %d norms, it counts %d parameters", i, len(v)-ClosedLen,
		len(c.l.Norms[i])))
}

// takeExperts adds the norms of experts to those of their parameters, and the step's loads to those before.
func (c *Coordinator) takeExperts() {
	var sums [][]float64 // by parameter and expert
	c.moves.step = nil
	for i := range c.l.Norms {
		norms, loads, _ := expertNorms(c.ready[i][ClosedLen+len(c.l.Norms[i]):])
		for _, n := range norms {
			for len(sums) <= n.Param {
				sums = append(sums, nil)
			}
			by := sums[n.Param]
			for k, e := range n.Experts {
				for len(by) <= e {
					by = append(by, 0)
				}
				by[e] += n.Squares[k]
			}
			sums[n.Param] = by
		}
		c.moves.step = addLoads(c.moves.step, Loads(loads))
	}
	for p, by := range sums {
		for len(c.norms) <= p {
			c.norms = append(c.norms, 0)
		}
		for _, x := range by {
			c.norms[p] += x
		}
	}
}

// move appends to a verdict where experts go in its step, if they do.
func (c *Coordinator) move(v []float64) []float64 {
	m := &c.moves
	m.next = m.now
	if c.void == nil && len(m.step) > 0 {
		m.next.Loads = addLoads(cloneLoads(m.now.Loads), m.step)
	}
	if c.l.MoveEvery == 0 || c.step%c.l.MoveEvery != 0 || c.step >= c.l.Last || c.void != nil {
		return v
	}
	to := c.l.Move(c.step, m.next.Loads, m.now.At)
	m.next = Laid{At: slices.Clone(m.now.At)}
	for _, p := range to {
		if i := slices.IndexFunc(m.next.At, func(x Placed) bool { return x.Block == p.Block }); i >= 0 {
			m.next.At[i] = p
		} else {
			m.next.At = append(m.next.At, p)
		}
	}
	if len(to) > 0 {
		v[CommitMoves] = 1
	}
	return AppendPlaced(v, to...)
}

// moving reports whether the step under way moves experts. A coordinator that has taken over knows that, and
// not where to: it thinks that all lie in order, which ranks need not agree with.
func (c *Coordinator) moving() bool { return c.verdict != nil && c.verdict[CommitMoves] > 0 }

// settle takes in that all ranks have ended a step, and says so where experts have moved in it.
func (m *mover) settle(ctx actors.Context, c *Coordinator) {
	m.now = m.next
	if c.moving() {
		ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicMoved, Step: c.step,
			Values: slices.Clone(c.verdict[CommitLen:])})
	}
}

// back takes in that all ranks are at a state again that comes from a source; what they hold already is as it
// was behind the last step that all have ended.
func (m *mover) back(source int32) {
	switch source {
	case FromCopy:
		m.now = m.copied
	case FromDisk:
		m.now = m.durable
	}
}
