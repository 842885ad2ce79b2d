package grad

import (
	"slices"

	"github.com/lfactor/lfactor/kernels/tensor"
)

// A phase is cut into segments in two steps that keep the program's order: a communication is issued where
// its operand is ready, at the end of a segment, and awaited at the beginning of the segment that first uses
// its result. Without Options.Overlap every segment awaits all that the one before it has issued.

// sinksInFlight bounds the segments whose communications without a result, reductions of gradients, may be
// under way at a time: what they send stays in memory.
const sinksInFlight = 2

// cutter makes the segments of one phase.
type cutter struct {
	t     *Tape
	segs  []Segment
	now   Segment
	from  map[*Value]Issued // results that have not arrived
	sinks []Issued          // under way, oldest first
	last  map[int]*Node     // that adds to the gradient of a parameter, by Node.Acc
	due   int64             // bytes of final gradients since a segment last ended for them
}

// cut splits a node list at its communications; independent neighbours are issued together.
func (t *Tape) cut(ns []*Node) []Segment {
	c := &cutter{t: t, from: map[*Value]Issued{}, last: map[int]*Node{}}
	for _, n := range ns {
		if n.Acc > 0 {
			c.last[n.Acc] = n
		}
	}
	for _, n := range ns {
		if n.Op.comm() {
			c.comm(n)
		} else {
			c.op(n)
		}
	}
	return c.end()
}

// needs is the first communication in flight that a node's operands come from.
func (c *cutter) needs(n *Node) (Issued, bool) {
	for _, v := range n.In {
		if at, ok := c.from[v]; ok {
			return at, true
		}
	}
	for _, e := range n.Then {
		if at, ok := c.needs(e); ok {
			return at, true
		}
	}
	return Issued{}, false
}

// await lets the segment that is being made begin with all that was issued together with a communication,
// but for sinks.
func (c *cutter) await(n *Node) {
	at, ok := c.needs(n)
	if !ok {
		return
	}
	if len(c.now.Ops)+len(c.now.Comm) > 0 {
		c.flush()
	}
	for ok {
		var together []Issued
		for v, x := range c.from {
			if x.Segment == at.Segment {
				delete(c.from, v)
				if !slices.Contains(together, x) { // a communication may have several results
					together = append(together, x)
				}
			}
		}
		c.now.Await = append(c.now.Await, together...)
		at, ok = c.needs(n)
	}
	sortIssued(c.now.Await)
}

// sortIssued sorts collectives by the segment that issues them and by their place within it.
func sortIssued(l []Issued) {
	slices.SortFunc(l, func(a, b Issued) int {
		if a.Segment != b.Segment {
			return a.Segment - b.Segment
		}
		return a.Comm - b.Comm
	})
}

// op adds a computation to the present segment. It has to wait for what its inputs wait for, and a
// segment that has issued collectives already is closed first, since these come last in it.
func (c *cutter) op(n *Node) {
	c.await(n)
	if len(c.now.Comm) > 0 {
		c.flush()
	}
	c.now.Ops = append(c.now.Ops, n)
	c.t.cost(&c.now.Cost, n)
	if n.Acc > 0 && c.last[n.Acc] == n {
		c.final(n.Acc - 1)
	}
}

// final notes that a parameter's gradient is. A segment ends where so many are that they are worth sending
// on their own.
func (c *cutter) final(param int) {
	c.now.Final = append(c.now.Final, param)
	c.due += int64(tensor.Len(c.t.order[param].Local)) * int64(tensor.F32.Size())
	if c.t.Bucket > 0 && c.due >= c.t.Bucket {
		c.flush()
		c.due = 0
	}
}

// comm adds a collective to the present segment and notes where each of its results will come from.
// One without results is a sink, for which nothing on this rank waits.
func (c *cutter) comm(n *Node) {
	c.await(n)
	at := Issued{len(c.segs), len(c.now.Comm)}
	c.now.Comm = append(c.now.Comm, n)
	c.t.cost(&c.now.Cost, n)
	for _, v := range n.Out {
		c.from[v] = at
	}
	if len(n.Out) == 0 {
		c.sinks = append(c.sinks, at)
	}
}

// flush ends a segment. The next one awaits what may not stay in flight any longer.
func (c *cutter) flush() {
	c.segs = append(c.segs, c.now)
	c.now = Segment{}
	if !c.t.Overlap {
		for i, n := range c.segs[len(c.segs)-1].Comm {
			if n.Op.Role == rotate { // what it is for comes after other work
				continue
			}
			c.now.Await = append(c.now.Await, Issued{len(c.segs) - 1, i})
			for _, v := range n.Out {
				delete(c.from, v)
			}
		}
		c.sinks = c.sinks[:0]
		return
	}
	var of []int // segments with sinks in flight
	for _, s := range c.sinks {
		if !slices.Contains(of, s.Segment) {
			of = append(of, s.Segment)
		}
	}
	for len(of) > sinksInFlight {
		for len(c.sinks) > 0 && c.sinks[0].Segment == of[0] {
			c.now.Await, c.sinks = append(c.now.Await, c.sinks[0]), c.sinks[1:]
		}
		of = of[1:]
	}
}

// end is all segments; the last one awaits what nobody else did.
func (c *cutter) end() []Segment {
	if len(c.now.Ops)+len(c.now.Comm) > 0 || len(c.now.Await) > 0 {
		c.flush()
	}
	rest := append(c.now.Await, c.sinks...)
	for _, at := range c.from {
		if !slices.Contains(rest, at) {
			rest = append(rest, at)
		}
	}
	if len(rest) > 0 {
		sortIssued(rest)
		c.segs = append(c.segs, Segment{Await: rest})
	}
	for s := range c.segs { // sums that communications bring are added by the segments that await them
		for _, at := range c.segs[s].Await {
			if n := c.segs[at.Segment].Comm[at.Comm]; n.Acc > 0 && c.last[n.Acc] == n {
				c.segs[s].Final = append(c.segs[s].Final, n.Acc-1)
			}
		}
	}
	return c.segs
}

// delayWeights lets weight gradients that are due before a communication of input gradients run behind it instead,
// so that it has something to hide behind. They stay in their order, and input gradients never depend on them.
func (t *Tape) delayWeights(ns []*Node) (out []*Node) {
	if !t.Overlap {
		return ns
	}
	var late []*Node
	for k, n := range ns {
		if n.Phase == W {
			late = append(late, n)
			continue
		}
		out = append(out, n)
		if n.Op.comm() {
			behind := len(late)
			if k+1 < len(ns) && ns[k+1].Op.comm() && ns[k+1].In[0].Node == n { // of two, each gets its part
				behind /= 2
			}
			out, late = append(out, late[:behind]...), late[behind:]
		}
	}
	return append(out, late...)
}
