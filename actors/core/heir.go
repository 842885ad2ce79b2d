package core

import (
	"slices"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   H-1: A coordinator that takes over sends nobody behind a step that some rank holds or was told to apply,
//     where its state can be had. Shown by 22_succession, watched by Monitor.seeCommit, broken by "what a rank
//     holds is not taken into account".

// The coordinator may end as any actor may. The one that takes its place knows the run's layout and its
// newest durable checkpoint; the rest the ranks tell it: every Commit and every copy in memory carries what
// the coordinator held at that step. It begins an epoch that is newer than any before, asks all ranks what
// they hold, and then recovers the run as after the loss of the ranks that hold nothing.

// heir is what a coordinator has heard while it takes over.
type heir struct {
	held []*holding // by rank; nil for one that has not answered, or holds nothing
}

// holding is a rank's answer to a claim.
type holding struct {
	step     int64 // as remembered has them
	pending  int64
	half     bool
	verdicts [][]float64
	copies   []copied // without contents
}

// lifeBits is how far the epochs of one coordinator lie from those of the next. No run survives so many
// losses: Restarts ends it before.
const lifeBits = 16

// start begins the run, or takes it over where coordinators have ended before.
func (c *Coordinator) start(ctx actors.Context, ended int64) {
	for _, r := range c.l.Ranks {
		ctx.Watch(r)
	}
	if ended > 0 {
		c.takeOver(ctx, ended)
		return
	}
	if c.l.EvalOnly {
		c.eval, c.asked = 1, stops
	}
	c.advance(ctx)
}

// takeOver begins the epoch of a coordinator in whose place others have ended before.
func (c *Coordinator) takeOver(ctx actors.Context, ended int64) {
	c.epoch, c.heir = uint32(ended)<<lifeBits, &heir{held: make([]*holding, len(c.l.Ranks))}
	c.step, c.newest = c.l.Durable, c.l.Durable
	c.kept = kept{c.l.Durable, c.l.OptimSteps, c.l.LossScale}
	c.begins(ctx)
	c.phase = claiming
	c.claim(ctx)
}

// claim asks all ranks what they hold, in an epoch of its own: a claim before it may be lost, or its answer.
// Those that have ended say so when they are back.
func (c *Coordinator) claim(ctx actors.Context) {
	c.epoch, c.suspect = c.epoch+1, false
	for i, r := range c.l.Ranks {
		if c.heir.held[i] = nil; !c.away[i] {
			c.back.gone[r] = true
		}
	}
	for _, r := range c.l.Ranks {
		ctx.Send(r, actors.Message{Kind: actors.Claim, Epoch: c.epoch})
	}
}

// claimed ends the epoch for the rank, and tells the new coordinator what it holds.
func (r *Rank) claimed(ctx actors.Context, m *actors.Message) {
	if r.update == owed && r.target.source == FromMember {
		r.last.pending, r.last.verdict = r.target.step, r.target.verdict
	}
	r.leave(m.Epoch)
	r.target = wanted{asked: true, early: r.target.early} // it goes nowhere before it is told where
	ctx.Send(r.l.Coordinator, actors.Message{Kind: actors.Holding, Epoch: m.Epoch, Step: r.last.holds,
		Port: r.life, Values: claimValues(&r.last, r.copies)})
}

// hears takes in a rank's answer.
func (c *Coordinator) hears(ctx actors.Context, m *actors.Message) {
	i, ok := c.place[m.From]
	if !ok || c.phase != claiming || int64(m.Port) < c.lives[i] {
		return
	}
	c.lives[i] = int64(m.Port)
	c.answered(ctx, i, holdingOf(m.Step, m.Values))
}

// answered notes what a rank holds, nil for nothing, no copies either; with the last answer the run is recovered.
func (c *Coordinator) answered(ctx actors.Context, i int, h *holding) {
	c.heir.held[i], c.back.blank[i] = h, h == nil || h.step == none
	delete(c.back.gone, c.l.Ranks[i])
	if len(c.back.gone) == 0 {
		c.inherit(ctx)
	}
}

// inherit makes of all answers what the coordinator before has known, and has everybody go to one state.
func (c *Coordinator) inherit(ctx actors.Context) {
	h, b := c.heir, &c.back
	c.phase, c.heir = recovering, nil
	c.epoch++ // a rank that hears of its state before it hears of the epoch keeps it
	c.newest = h.newest(c.kept.step)
	state, verdict := h.known(c.newest, c.kept)
	b.unknown = state == nil
	for i, x := range h.held {
		if !b.blank[i] && (x.step < c.newest || x.half) {
			b.halfway, b.unknown = true, b.unknown || x.step < c.newest && x.pending != c.newest
		}
	}
	if c.step = c.newest; state != nil {
		c.updates, c.l.LossScale = state.updates, state.scale
	}
	c.verdict = verdict
	c.copies.inherit(h, c)
	if c.source() == FromMember && verdict != nil { // the coordinator before may not have said so any more
		d := VerdictOf(verdict)
		s := Summary{Loss: d.Loss, Norm: d.Norm, Overflow: d.Overflow, LR: d.LR, Scale: c.l.LossScale.Scale}
		ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicStep, Step: c.step, Values: s.Values()})
	}
	if c.step >= c.l.First && c.evaluates(c.step) {
		b.eval = c.step
	}
	c.due = c.l.SaveEvery > 0 && c.step/c.l.SaveEvery*c.l.SaveEvery > c.kept.step && c.step < c.l.Last
	c.goBack(ctx)
}

// newest is the newest step that is decided, as far as anybody knows who is left.
func (h *heir) newest(step int64) int64 {
	for _, x := range h.held {
		if x == nil {
			continue
		}
		step = max(step, x.step)
		for _, v := range x.verdicts {
			if verdictStep(v) == x.pending {
				step = max(step, x.pending)
			}
		}
	}
	return step
}

// known is what the coordinator before has held after a step, nil if nobody can tell, and its commit, nil if
// it is older than anybody remembers.
func (h *heir) known(step int64, durable kept) (state *kept, verdict []float64) {
	tell := func(k kept) {
		if k.step == step {
			state = &k
		}
	}
	tell(durable)
	for _, x := range h.held {
		if x == nil {
			continue
		}
		for _, v := range x.verdicts {
			if verdictStep(v) == step {
				verdict = v
				tell(keptAfter(v, durable.scale))
			}
		}
		for _, k := range x.copies {
			tell(keptOf(k.kept, durable.scale))
		}
	}
	return state, verdict
}

// inherit finds the newest copies that serve all, and the newest before, which may be with more ranks: what was under
// way when the coordinator ended is with some.
func (k *keeper) inherit(h *heir, c *Coordinator) {
	var steps []int64
	for _, x := range h.held {
		if x != nil {
			for _, y := range x.copies {
				steps = append(steps, y.step)
			}
		}
	}
	slices.Sort(steps)
	var newest *keeper
	for _, step := range slices.Backward(slices.Compact(steps)) {
		found := keeper{own: make([]bool, len(h.held)), far: make([][]int, len(h.held))}
		for i, x := range h.held {
			if x == nil {
				continue
			}
			for _, y := range x.copies {
				of, ok := c.place[y.of]
				switch {
				case !ok || y.step != step:
				case of == i:
					found.own[i] = true
				default:
					found.far[of] = append(found.far[of], i)
				}
				if y.step == step {
					found.whole = keptOf(y.kept, c.kept.scale)
				}
			}
		}
		if *k = found; c.serve() {
			if newest != nil {
				newest.older = &found
				break
			}
			newest = &found
		}
	}
	if *k = (keeper{}); newest != nil {
		*k = *newest
	}
}

// evaluates reports whether an evaluation follows a step.
func (c *Coordinator) evaluates(step int64) bool {
	return c.l.EvalEvery > 0 && (step%c.l.EvalEvery == 0 || step == c.l.Last) && c.l.EvalSteps > 0
}
