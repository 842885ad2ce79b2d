package planner

import (
	"fmt"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/search"
)

// contextMost is how many ranks may share the tokens of a sequence in a plan that is looked for.
const contextMost = 16

// contexts lists the ways to share the tokens of a sequence out over some of a stage's ranks: keys and
// values gathered or going round, or heads exchanged where they divide.
func (p *Search) contexts(ranks, tp int) (out []search.Context) {
	for n := 2; n <= min(ranks, contextMost) && 2*n*tp <= p.cfg.Run.Data.SeqLen; n++ {
		if ranks%n != 0 {
			continue
		}
		for _, comm := range []string{"gather", "ring", "ulysses"} {
			if comm != "ulysses" || p.cfg.Model.Heads%(tp*n) == 0 {
				out = append(out, search.Context{CP: n, Comm: comm})
			}
		}
	}
	return out
}

// contextSettings are what a candidate's ways to share tokens out, and to cut them over time, are in a run
// file with sequences of so many tokens.
func contextSettings(c *search.Candidate, length int) []string {
	out := []string{fmt.Sprintf("plan.cp=%d", max(1, c.CP))}
	if c.Chunks > 1 {
		out = append(out, fmt.Sprintf("plan.chunk_size=%d", length/c.Chunks), "plan.keep_chunks=0")
	}
	if c.CP > 1 {
		out = append(out, "plan.cp_comm="+c.Comm, "plan.cp_layout=auto", "plan.ulysses=0")
	}
	return out
}

// share sets the rows of a variant's job, and how ranks exchange them.
func (p *Search) share(j *layout.Design, v search.Variant) {
	j.Rows = v.Batch * p.cfg.Run.Data.SeqLen
	if v.CP <= 1 {
		return
	}
	unit := v.CP
	if j.Ring, j.Zigzag = v.Comm == "ring", v.Comm != "ulysses" && j.Model.Dealable(); j.Zigzag {
		unit *= 2
	}
	j.Rows = (j.Rows + unit - 1) / unit * unit
}

// exchange prices what ranks that share tokens send each other in a trace of a variant.
type exchange struct {
	p     *Search
	l     *layout.Layout
	v     search.Variant
	near  [][]int // devices of the first rank's groups
	price sim.Prices
}

// seconds are those of one communication.
func (x *exchange) seconds(c core.Comm) float64 {
	members, bytes := x.near[c.Group], c.Bytes
	switch n, traced := int64(x.v.DP*max(1, x.v.CP)), int64(len(members)); {
	case traced < 2:
		return 0
	case c.Shift != 0:
		return x.p.Machine.Link(members[0], members[1]).Of(bytes)
	case x.v.Zero >= 2 && c.Group == x.zero():
		// traced with two replicas at most: of n members each sends n-1 parts of n
		members, bytes = x.p.Space.Group(int(n), x.v.TP), bytes*traced/(traced-1)*(n-1)/n
	}
	return float64(x.price.Collective(members, bytes, c.Apart)) / 1e9
}

// behind reports whether a communication travels behind the passes before and after the block's own: weights
// are gathered while the block before computes, and their gradients are summed while the next one does, as
// fully sharded data parallelism prefetches them.
func (x *exchange) behind(c core.Comm) bool {
	return x.v.Overlap && x.v.Zero >= 2 && c.Group == x.zero()
}

// zero is the group of ranks that share state out.
func (x *exchange) zero() int {
	var axes []string
	for _, a := range []string{topology.DP, topology.CP, topology.Ulysses} {
		if x.l.Design.Mesh.Len(a) > 1 {
			axes = append(axes, a)
		}
	}
	return x.l.GroupAlong(layout.DecoderSide, axes...)
}

// waits is a pass of which what goes between ranks takes time only as far as the rank waits for it, since a
// ring's parts come while it computes with others, and with overlap all else does too.
func (p *Search) waits(segs []core.Segment, seconds func(core.Comm) float64,
	behind func(core.Comm) bool) (pass search.Pass) {
	var at float64 // when the rank is done with what came before
	arrived := make([][]float64, len(segs))
	for i, x := range segs {
		begin := at
		for _, a := range x.Await {
			begin = max(begin, arrived[a.Segment][a.Comm])
		}
		if i > 0 && begin > at {
			pass.Wait(p.Machine, begin-at)
		}
		pass.Append(p.Machine, i == 0, search.Piece{Flops: x.Flops, Bytes: x.Bytes, Calls: x.Calls}, 0)
		at = begin + p.Machine.Segment(x.Flops, x.Bytes, x.Calls)
		sent := at
		for _, c := range x.Comms {
			if t := seconds(c); !behind(c) {
				sent += t
			} else if at == 0 {
				pass.Gather += t
			} else {
				pass.Reduce += t
			}
			arrived[i] = append(arrived[i], sent)
		}
	}
	return pass
}
