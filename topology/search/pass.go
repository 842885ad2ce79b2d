package search

import "github.com/lfactor/lfactor/topology/cost"

// Piece is work of a rank without communication.
type Piece struct {
	Flops, Bytes int64
	Calls        int
}

func (p Piece) plus(q Piece) Piece {
	return Piece{p.Flops + q.Flops, p.Bytes + q.Bytes, p.Calls + q.Calls}
}

func (p Piece) seconds(m *cost.Machine) float64 { return m.Segment(p.Flops, p.Bytes, p.Calls) }

// Pass is a pass through a block, or through several one after another: pieces of work, with collectives
// between them.
type Pass struct {
	First, Last Piece
	Between     float64 // seconds of all between them
	Parted      bool    // there is a Last
}

// Append adds a piece behind a pass, and then collectives of so many seconds. The piece is one of its own
// even behind no collective.
func (p *Pass) Append(m *cost.Machine, first bool, x Piece, comms float64) {
	switch {
	case first:
		p.First = x
	case p.Parted:
		p.Between += p.Last.seconds(m)
		p.Last = x
	default:
		p.Parted, p.Last = true, x
	}
	if comms > 0 { // what follows is behind them
		if p.Parted {
			p.Between += p.Last.seconds(m)
		}
		p.Parted, p.Last = true, Piece{}
		p.Between += comms
	}
}

// Wait adds seconds in which the rank waits for what others send.
func (p *Pass) Wait(m *cost.Machine, seconds float64) {
	if p.Parted {
		p.Between += p.Last.seconds(m)
	}
	p.Parted, p.Last = true, Piece{}
	p.Between += seconds
}

// Seconds is how long the pass takes.
func (p Pass) Seconds(m *cost.Machine) float64 {
	t := p.First.seconds(m) + p.Between
	if p.Parted {
		t += p.Last.seconds(m)
	}
	return t
}

// then is a pass through p's blocks and after them q's.
func (p Pass) then(m *cost.Machine, q Pass) Pass {
	switch {
	case !p.Parted:
		q.First = p.First.plus(q.First)
		return q
	case !q.Parted:
		p.Last = p.Last.plus(q.First)
		return p
	}
	p.Between += p.Last.plus(q.First).seconds(m) + q.Between
	p.Last = q.Last
	return p
}
