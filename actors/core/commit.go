package core

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   C-1: At most one commit of a step is sent, and none before all ranks are ready. Shown by
//     02_commit_replicas, watched by Monitor.seeCommit, broken by "Commit when all but one are ready".
//   C-2: No parameter changes before its rank has the commit of the step. Shown by 02_commit_replicas,
//     watched by Monitor.applies, broken by "update begins without Commit".
//   C-3: A step that overflows or is given up changes no parameter and counts as no update. Shown by
//     03_overflow, watched by Monitor.audit, broken by "an update that overflows is counted".
//   C-4: A step that is given up says nothing of the loss scale. Shown by 18_void_steps, watched by
//     Monitor.until, broken by "a step that is given up changes the loss scale".

// A step is committed in two rounds. Every rank reduces its gradients, keeps them, and sends Ready with its
// values of the step so far, as Closed has them, the squared norms of the parameters that it counts, and what
// AppendExpertNorms and AppendLoad write of its experts.
// When all are ready the coordinator, alone, decides the step: it sends everyone the same Commit, and only
// then do parameters change. A rank that is lost before Commit leaves every other at the step before; one
// that is lost afterwards leaves a step that is decided, whoever has heard of it.

// count takes in that a rank is ready; with the last one the step is committed.
// In the words of the field: gradient clipping.
func (c *Coordinator) count(ctx actors.Context, m *actors.Message) {
	i, ok := c.place[m.From]
	switch {
	case !ok || m.Step != c.step || c.phase != stepping:
		panic(fmt.Sprintf("core: actor %d is ready for step %d while step %d runs", m.From, m.Step, c.step))
	case c.ready[i].come:
		panic(fmt.Sprintf("core: rank %d is ready for step %d twice", i, m.Step))
	case c.l.Norms != nil:
		c.readiness(i, m.Values)
	}
	c.ready[i] = saidOf(m.Values)
	c.object(i, m)
	if c.unready--; c.unready > 0 {
		return
	}
	sum, loss := c.sums()
	if norm := math.Sqrt(sum); c.void == nil && c.l.LossScale.beyond(norm) {
		c.void = &VoidError{Step: c.step, Why: fmt.Sprintf("the gradient norm of %.4g is so far above those before "+
			"that sums in fixed point have no room for it (train.reproducible: any-plan)", norm)}
	}
	if x, yes := c.spike(math.Sqrt(sum)/c.l.LossScale.Scale, loss); yes {
		c.aside(ctx, x)
		return
	}
	c.verdict, c.phase = c.decide(sum, loss), applying
	for _, r := range c.l.Ranks {
		ctx.Send(r, actors.Message{Kind: actors.Commit, Epoch: c.epoch, Step: c.step, Values: c.verdict})
	}
}

// sums are the squared gradient norm, which is summed over ranks and then over parameters, so that it has one
// order on any cut of the model, and the loss.
func (c *Coordinator) sums() (sum, loss float64) {
	clear(c.norms)
	for i, list := range c.l.Norms {
		for k, p := range list {
			for int(p) >= len(c.norms) {
				c.norms = append(c.norms, 0)
			}
			c.norms[p] += c.ready[i].more[k]
		}
	}
	c.takeExperts()
	for _, x := range c.norms {
		sum += x
	}
	for i := range c.ready {
		loss += c.ready[i].used.Loss
	}
	return sum, loss
}

// decide makes the scalars of the update.
func (c *Coordinator) decide(sum, loss float64) []float64 {
	x := Verdict{LR: c.l.LR(c.step), Update: c.updates + 1}
	x.Loss = loss
	c.clip(&x, sum)
	x.after = c.next(x.Overflow)
	x.after.scale.follow(x.Norm*c.l.LossScale.Scale, x.Overflow)
	if c.l.Spikes.On() && !x.Overflow {
		x.after.scale.Usual.see(x.Norm, x.Loss)
	}
	to := c.move()
	x.Moves = len(to) > 0
	return AppendPlaced(x.Values(), to...)
}

// clip sets norm and factors, of gradients whose squares sum to sum: groups that have a norm of their own are no
// part of the one that all others are clipped by.
func (c *Coordinator) clip(x *Verdict, sum float64) {
	scale := c.l.LossScale.Scale
	x.Norm, x.Factor, x.Overflow = ClipFactor(sum, scale, c.l.Clip)
	if len(c.l.Clips) > 0 {
		var own [ClipsMost + 1]float64
		for p, y := range c.norms {
			if p < len(c.l.ClipOf) {
				own[c.l.ClipOf[p]] += y
			} else {
				own[0] += y
			}
		}
		_, x.Factor, _ = ClipFactor(own[0], scale, c.l.Clip)
		for i, limit := range c.l.Clips {
			_, x.Groups[i], _ = ClipFactor(own[1+i], scale, limit)
		}
	}
	if x.Overflow = x.Overflow || c.void != nil; x.Overflow {
		x.Factor, x.Groups = 0, [ClipsMost]float64{}
	}
}

// next is what the coordinator holds after the step under way: a step that overflows makes no update, and
// one that is given up says nothing of the loss scale.
func (c *Coordinator) next(overflow bool) kept {
	k := c.now()
	if c.void == nil {
		k.scale.Update(overflow)
	}
	if !overflow {
		k.updates++
	}
	return k
}

// VoidError says why the update of a step was not made: the first reason of the lowest rank that had one.
type VoidError struct {
	Step int64
	Rank int
	Why  string
	Over bool // more rows of tokens came to a rank than memory is planned for
}

// Error names the step and the reason.
func (e *VoidError) Error() string { return fmt.Sprintf("step %d: %s", e.Step, e.Why) }

// VoidsMost is how many steps in a row may not be given up: what comes once may be the data's fault, what
// stays is the model's.
const VoidsMost = 3

// object takes in that a rank's gradients are worth nothing.
func (c *Coordinator) object(rank int, m *actors.Message) {
	x := UsageOf(m.Values)
	if x.Over+x.Wild == 0 || c.void != nil && c.void.Rank < rank {
		return
	}
	c.void = &VoidError{Step: c.step, Rank: rank, Why: m.Text, Over: x.Over > 0}
}

// givenUp counts a step without an update, and says whether the run can go on.
func (c *Coordinator) givenUp(ctx actors.Context) bool {
	if c.voided == 0 || c.step < c.voided { // earlier: the run went back behind it
		c.voided = c.step
	}
	voids := c.step - c.voided + 1
	if voids < VoidsMost {
		return true
	}
	c.fail(ctx, &actors.Message{Kind: actors.Failed,
		Err: fmt.Errorf("%w; no update was made in %d steps in a row", c.void, voids)})
	return false
}

// ClipFactor is the global gradient norm of scaled gradients whose squares sum to sum, and the factor that
// unscales them and keeps the norm within limit (0 for no limit), as torch.nn.utils.clip_grad_norm_ does; a
// norm that is not finite gives factor 0 and overflow.
func ClipFactor(sum, scale, limit float64) (norm, factor float64, overflow bool) {
	norm, factor = math.Sqrt(sum)/scale, 1/scale
	switch {
	case math.IsNaN(norm) || math.IsInf(norm, 0):
		return norm, 0, true
	case limit > 0 && norm > limit:
		factor *= limit / (norm + 1e-6)
	}
	return norm, factor, false
}
