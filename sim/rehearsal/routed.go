package rehearsal

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/routing"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
)

// Routed is what a trace of routing says of a plan on a machine.
type Routed struct {
	Steps int `json:"steps"` // that were recorded
	// The expert with the most rows of a step, over even use.
	Block  int     `json:"block"`
	Expert int     `json:"expert"`
	Rows   int     `json:"rows"`
	Share  float64 `json:"share_of_even_use"`
	// The rank that got the most rows of a microbatch for a layer's experts, over even use, and how long
	// those take there, forward, in seconds.
	Rank      int     `json:"rank"`
	RankBlock int     `json:"rank_block"`
	RankShare float64 `json:"rank_share_of_even_use"`
	RankTime  float64 `json:"rank_time_s"`
	EvenTime  float64 `json:"even_time_s"`
	// The connection that carried the most bytes of one dispatch; From < 0 is none.
	From     int     `json:"from"`
	To       int     `json:"to"`
	Bytes    int64   `json:"bytes"`
	LinkTime float64 `json:"link_time_s"`
	// RankShare of all steps together, as experts lie and with a copy more on each rank, placed by load.
	Held   float64 `json:"share_held"`
	Spread float64 `json:"share_spread"`
}

// String says what bounds a step.
func (r *Routed) String() string {
	text := fmt.Sprintf("routing of %d steps: expert %d of block %d had %d rows of a step, %.2f of even use", r.Steps,
		r.Expert, r.Block, r.Rows, r.Share)
	if r.From >= 0 {
		bound := "its experts bound the layer"
		if r.LinkTime > r.RankTime {
			bound = "that link bounds the layer"
		}
		text += fmt.Sprintf("; rank %d got %.2f of even use for block %d and took %.3g ms for its experts, not %.3g ms",
			r.Rank, r.RankShare, r.RankBlock, 1e3*r.RankTime, 1e3*r.EvenTime)
		text += fmt.Sprintf("; most of a dispatch went from rank %d to rank %d, %d bytes in %.3g ms: %s; over all "+
			"steps the fullest rank has %.2f of even use, %.2f with one copy more on each rank, placed by load", r.From,
			r.To, r.Bytes, 1e3*r.LinkTime, bound, r.Held, r.Spread)
	}
	return text
}

// routedKey is a layer in a microbatch of a step.
type routedKey struct {
	step  int64
	micro int32
	chunk int32
	block int32
}

// routed is a trace, laid over a plan.
type routed struct {
	l      *layout.Layout
	traces []*routing.Trace
	steps  []int64
	side   []string                      // the axes that experts are shared out over
	shares map[routedKey]map[int]float64 // by rank: rows over even use
	costs  map[costKey]map[int]grad.Cost // of segments: what grows with rows
	whole  map[[2]int64][]int            // by step and block: the rows of each expert
	moved  []placement                   // of experts, in order of steps
	m      *cost.Machine
}

// costKey finds the cost of one segment of one phase of a trace.
type costKey struct {
	trace layout.TraceKey
	phase grad.Phase
	pc    int32
}

// Replay lets the simulation take as long as recorded routing makes it: a rank's experts by the rows that
// came to them. Steps beyond the recorded ones begin with those again.
func (r *Rehearsal) Replay(cfg *configs.Config, dir string) (*Routed, error) {
	x := &routed{l: r.Layout, m: r.Machine, shares: map[routedKey]map[int]float64{},
		costs: map[costKey]map[int]grad.Cost{}}
	want := r.Layout.Design.RoutingHeader(cfg.Model.Identity())
	for rank := range r.Layout.World() {
		want.Rank = rank
		t, err := layout.OpenRouting("--routing", dir, want)
		if err != nil {
			return nil, err
		}
		x.traces = append(x.traces, t)
		for _, p := range t.Places {
			if !slices.Contains(x.steps, p.Step) {
				x.steps = append(x.steps, p.Step)
			}
		}
	}
	if len(x.steps) == 0 {
		return nil, fmt.Errorf("--routing: %s: nothing was recorded", dir)
	}
	slices.Sort(x.steps)
	for _, name := range []string{topology.EP, topology.ETP} {
		if r.Layout.Design.Mesh.Len(name) > 1 {
			x.side = append(x.side, name)
		}
	}
	out, err := x.read()
	if err != nil {
		return nil, fmt.Errorf("--routing: %s: %w", dir, err)
	}
	r.routed = x
	return out, nil
}

// members are the ranks that exchange rows with one, itself among them, and its place.
func (x *routed) members(rank int) (members []int, pos int) {
	if len(x.side) == 0 {
		return []int{rank}, 0
	}
	g := x.l.RankLayout(rank, 0).Groups[x.l.GroupAlong(layout.DecoderSide, x.side...)]
	for _, m := range g.Members {
		members = append(members, int(m-layout.FirstRank))
	}
	return members, g.Pos
}

// read works out what every rank gets, and what is worst.
func (x *routed) read() (*Routed, error) {
	e := x.l.Design.Model.Spec.Experts
	out := &Routed{Steps: len(x.steps), From: -1}
	ep, etp := max(1, x.l.Design.Mesh.Len(topology.EP)), max(1, x.l.Design.Mesh.Len(topology.ETP))
	at := layout.InOrder(e.Experts, e.Limit.Copies)
	seats, own := seatsOf(at), len(at)/ep
	// rows by expert: of a step's block, and of a block
	whole, all := map[[2]int64][]int{}, map[int32][]float64{}
	x.whole = whole
	for rank := range x.traces {
		members, pos := x.members(rank)
		first := pos / etp * own
		for _, p := range x.traces[rank].Places {
			key := routedKey{p.Step, p.Micro, p.Chunk, p.Block}
			got, total := 0, 0
			for _, m := range members {
				chosen, ok, err := x.traces[m].Read(p)
				if err != nil || !ok {
					return nil, fmt.Errorf("rank %d has nothing of step %d, microbatch %d, block %d, or something "+
						"else (%v)", m, p.Step, p.Micro, p.Block, err)
				}
				n := x.within(chosen, seats, first, own)
				if m == rank {
					x.count(whole, all, p, chosen, e.Experts)
				} else {
					x.link(out, m, rank, n)
				}
				got, total = got+n, total+len(chosen)
			}
			if total == 0 {
				continue
			}
			if x.shares[key] == nil {
				x.shares[key] = map[int]float64{}
			}
			share := float64(got) * float64(ep) / float64(total)
			if x.shares[key][rank] = share; share > out.RankShare {
				out.Rank, out.RankBlock, out.RankShare = rank, int(p.Block), share
			}
		}
	}
	x.fullest(out, whole)
	out.EvenTime, out.RankTime = x.expertTime(out.RankBlock, 1), x.expertTime(out.RankBlock, out.RankShare)
	return out, x.spread(out, all, ep)
}

// count adds a rank's choices to those of its step and layer.
func (x *routed) count(whole map[[2]int64][]int, all map[int32][]float64, p routing.Place, chosen []int32,
	experts int) {
	k := [2]int64{p.Step, int64(p.Block)}
	if whole[k] == nil {
		whole[k] = make([]int, experts)
	}
	if all[p.Block] == nil {
		all[p.Block] = make([]float64, experts)
	}
	for _, i := range chosen {
		whole[k][i]++
		all[p.Block][i]++
	}
}

// fullest finds the expert with the most rows of a step.
func (x *routed) fullest(out *Routed, whole map[[2]int64][]int) {
	keys := make([][2]int64, 0, len(whole))
	for k := range whole {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	for _, k := range keys {
		sum := 0
		for _, n := range whole[k] {
			sum += n
		}
		for e, n := range whole[k] {
			if share := float64(n) * float64(len(whole[k])) / float64(max(1, sum)); share > out.Share {
				out.Block, out.Expert, out.Rows, out.Share = int(k[1]), e, n, share
			}
		}
	}
}

// link takes in the rows that one rank sends to another in a dispatch.
func (x *routed) link(out *Routed, from, to, rows int) {
	j := x.l.Design
	bytes := int64(rows) * int64(j.Model.Spec.Hidden) * int64(j.DType.Size())
	link := x.m.Link(from, to)
	if t := link.Of(bytes); t > out.LinkTime {
		out.From, out.To, out.Bytes, out.LinkTime = from, to, bytes, t
	}
}

// spread compares the fullest rank of all steps together with what copies of the busiest experts would make of it.
func (x *routed) spread(out *Routed, all map[int32][]float64, ep int) error {
	if ep == 1 {
		return nil
	}
	hosts := 1
	for h := min(x.m.Hosts, ep); h > 1; h-- {
		if ep%h == 0 && x.l.World() > x.m.Devices {
			hosts = h
			break
		}
	}
	spec := x.l.Design.Model.Spec.Experts
	groups := max(1, spec.Router.Groups)
	blocks := make([]int32, 0, len(all))
	for b := range all {
		blocks = append(blocks, b)
	}
	slices.Sort(blocks)
	for _, b := range blocks {
		load, sum := all[b], 0.0
		held := topology.Replicas{Expert: layout.InOrder(len(load), spec.Limit.Copies), Count: make([]int, len(load))}
		for _, e := range held.Expert {
			held.Count[e]++
		}
		for _, n := range load {
			sum += n
		}
		more, err := topology.SpreadExperts(load, len(held.Expert)+ep, groups, hosts, ep)
		if err != nil {
			return err
		}
		even := sum / float64(ep)
		if now := held.Most(load, ep) / even; now > out.Held {
			out.Held, out.Spread = now, more.Most(load, ep)/even
		}
	}
	return nil
}

// expertTime is how long a layer's experts take on a rank, forward, with so many times the rows of even use.
func (x *routed) expertTime(block int, share float64) float64 {
	var c grad.Cost
	for s := range x.l.Stages {
		tr := x.l.Traces[layout.TraceKey{Stage: s, Class: x.l.Class}]
		segs := tr.Segments(grad.F)
		for i := range segs {
			r := tr.RaggedCosts(&segs[i])[block]
			c = c.Plus(r)
		}
	}
	return x.m.Segment(int64(share*float64(c.Filled)), int64(share*float64(c.Bytes)), c.Calls)
}

// price is the duration of a segment whose experts get the rows that were recorded.
func (x *routed) price(rank int, j *actors.Job, s *core.Segment) (flops, bytes int64) {
	flops, bytes = s.Flops, s.Bytes
	if j.Kind != actors.RunSegment || j.Step < 1 {
		return flops, bytes
	}
	k := costKey{layout.TraceKey{Stage: int(j.Action.Stage), Chunk: int(j.Action.Chunk), Class: j.Class},
		layout.PhaseOf[j.Action.Kind], j.Segment}
	costs, known := x.costs[k]
	if !known {
		tr := x.l.Trace(k.trace)
		if segs := tr.Segments(k.phase); int(k.pc) < len(segs) {
			costs = tr.RaggedCosts(&segs[k.pc])
		}
		x.costs[k] = costs
	}
	for block, c := range costs {
		share := x.share(j.Step, rank, routing.Place{Step: x.recorded(j.Step), Micro: j.Action.Micro,
			Chunk: int32(j.Action.Chunk), Block: int32(block)})
		flops, bytes = flops+int64((share-1)*float64(c.Filled)), bytes+int64((share-1)*float64(c.Bytes))
	}
	return flops, bytes
}
