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

// Pass is a pass through a block, or through several one after another: pieces of work, with collectives between them.
type Pass struct {
	First, Last Piece
	Between     float64 // seconds of all between them
	Parted      bool    // there is a Last
	// Of weights that are shared out and travel beside the passes: seconds in which those of the block are
	// gathered, and in which its gradients are summed.
	Gather, Reduce float64

	idle  float64 // seconds in which work waits for gathered weights
	began float64 // when the last block's work began, which is when the next block's weights are asked for
	free  float64 // when all that was sent has come
	many  bool    // there are several blocks
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

// work is the pass without what travels beside it.
func (p Pass) work(m *cost.Machine) float64 {
	t := p.First.seconds(m) + p.Between
	if p.Parted {
		t += p.Last.seconds(m)
	}
	return t
}

// alone is a pass through one block: it begins with its weights, and ends with its gradients.
func (p Pass) alone(m *cost.Machine) Pass {
	if !p.many {
		p.idle, p.free = p.Gather, p.Gather
		if p.Reduce > 0 {
			p.free += p.work(m) + p.Reduce
		}
	}
	return p
}

// Seconds is how long the pass takes.
func (p Pass) Seconds(m *cost.Machine) float64 {
	p = p.alone(m)
	return max(p.work(m)+p.idle, p.free)
}

// then is a pass through p's blocks and after them q's block. Its weights are gathered from the time on at
// which the last of p's blocks began, as fully sharded data parallelism prefetches them; gradients are summed while
// later blocks work, one after the other.
func (p Pass) then(m *cost.Machine, q Pass) Pass {
	if p == (Pass{}) {
		return q
	}
	out := p.joined(m, q)
	if p = p.alone(m); p.free == 0 && q.Gather+q.Reduce == 0 {
		return out
	}
	ready := p.work(m) + p.idle
	begin := max(ready, p.began+q.Gather)
	out.many, out.idle, out.began, out.free = true, p.idle+begin-ready, begin, p.free
	if q.Reduce > 0 {
		out.free = max(p.free, begin+q.work(m)) + q.Reduce
	}
	return out
}

// joined is then without what travels behind the passes.
func (p Pass) joined(m *cost.Machine, q Pass) Pass {
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
