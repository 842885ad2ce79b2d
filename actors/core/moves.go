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

// readiness checks what a rank says behind its values when it is ready.
func (c *Coordinator) readiness(i int, v []float64) {
	more, n := Behind(v), len(c.l.Norms[i])
	if len(v) >= UsageLen && len(more) >= n {
		if _, _, ok := expertNorms(more[n:]); ok {
			return
		}
	}
	panic(fmt.Sprintf("core: rank %d reports %d norms, it counts %d parameters", i, len(more), n))
}

// takeExperts adds the norms of experts to those of their parameters, and the step's loads to those before.
func (c *Coordinator) takeExperts() {
	var sums [][]float64 // by parameter and expert
	c.moves.step = nil
	for i := range c.l.Norms {
		norms, loads, _ := expertNorms(c.ready[i].more[len(c.l.Norms[i]):])
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

// move says where experts go in the step under way, nil for nowhere.
func (c *Coordinator) move() []Placed {
	m := &c.moves
	m.next = m.now
	if c.void == nil && len(m.step) > 0 {
		m.next.Loads = addLoads(cloneLoads(m.now.Loads), m.step)
	}
	if c.l.MoveEvery == 0 || c.step%c.l.MoveEvery != 0 || c.step >= c.l.Last || c.void != nil {
		return nil
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
	return to
}

// moving reports whether the step under way moves experts. A coordinator that has taken over knows that, and
// not where to: it thinks that all lie in order, which ranks need not agree with.
func (c *Coordinator) moving() bool { return c.verdict != nil && VerdictOf(c.verdict).Moves }

// settle takes in that all ranks have ended a step, and says so where experts have moved in it.
func (m *mover) settle(ctx actors.Context, c *Coordinator) {
	m.now = m.next
	if c.moving() {
		ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicMoved, Step: c.step,
			Values: AppendPlaced(nil, Moves(c.verdict)...)})
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
