package core

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/actors"
)

// What always holds here (doc.go says how the lines read):
//
//   C-5: A step that is out of the ordinary is not committed: steps are taken again, with the samples behind those
//     of it. Shown by 26_spike, watched by Monitor.seeCommit, broken by "a step out of
//     the ordinary is committed".

// Usual is what steps have been like: averages of which each step weighs a fiftieth less than the one behind
// it. It goes with the state that a run may go back to, so that a run which was ended decides as one left
// alone.
type Usual struct {
	Norm, Loss float64 // sums of gradient norms and losses with their weights
	Count      int64   // of steps
}

// usualDecay is the weight of a step beside the one behind it.
const usualDecay = 0.98

// see takes a step in.
func (u *Usual) see(norm, loss float64) {
	u.Norm += (1 - usualDecay) * (norm - u.Norm)
	u.Loss += (1 - usualDecay) * (loss - u.Loss)
	u.Count++
}

// Of are the averages, which the weights of steps before the first are taken out of.
func (u Usual) Of() (norm, loss float64) {
	w := 1 - math.Pow(usualDecay, float64(u.Count))
	if u.Count == 0 {
		return 0, 0
	}
	return u.Norm / w, u.Loss / w
}

// Spikes say which steps are out of the ordinary, and what is done about them.
type Spikes struct {
	Norm, Loss float64 // more than so many times the usual gradient norm or loss; 0 is no limit
	After      int64   // steps without which nothing is known to be usual
	Back       int64   // steps that are taken again with other samples; 1 is that step alone
	Most       int     // spikes in a row at one step after which the run ends; 0 for no end
}

// On reports whether there is a limit.
func (s Spikes) On() bool { return s.Norm > 0 || s.Loss > 0 }

// Spike is a TopicSpike report: a step that was not committed.
type Spike struct {
	Norm, UsualNorm float64
	Loss, UsualLoss float64
	From            int64 // the first step that is taken again, with samples behind those of the step
	State           int64 // the step whose state the run goes back to
	step            int64
	told            bool
}

// SpikeOf reads one.
func SpikeOf(v []float64) Spike {
	w := (*[6]float64)(v)
	return Spike{Norm: w[0], UsualNorm: w[1], Loss: w[2], UsualLoss: w[3], From: int64(w[4]), State: int64(w[5])}
}

// Values writes it as numbers.
func (x Spike) Values() []float64 {
	return []float64{x.Norm, x.UsualNorm, x.Loss, x.UsualLoss, float64(x.From), float64(x.State)}
}

// spiking is what the coordinator knows of steps out of the ordinary.
type spiking struct {
	at    int64 // the last of them
	times int   // that it was, in a row
	from  int64 // the first of the steps that were taken again with it
}

// spike says whether the step under way is out of the ordinary.
func (c *Coordinator) spike(norm, loss float64) (x Spike, yes bool) {
	l, u := c.l.Spikes, c.l.LossScale.Usual
	if !l.On() || c.void != nil || math.IsNaN(norm) || math.IsInf(norm, 0) || u.Count < l.After {
		return
	}
	x = Spike{Norm: norm, Loss: loss}
	x.UsualNorm, x.UsualLoss = u.Of()
	return x, l.Norm > 0 && norm > l.Norm*x.UsualNorm || l.Loss > 0 && !(loss <= l.Loss*x.UsualLoss)
}

// aside leaves the step under way: all go back to the state before it, or to the newest durable one where
// more steps are to be taken again, and read other samples from the first of those on. Steps between that
// state and the first are taken again as they were.
func (c *Coordinator) aside(ctx actors.Context, x Spike) {
	if c.spiked.at != c.step {
		c.spiked.at, c.spiked.times = c.step, 0
	}
	if c.spiked.times++; c.l.Spikes.Most > 0 && c.spiked.times > c.l.Spikes.Most {
		c.fail(ctx, &actors.Message{Kind: actors.Failed,
			Err: fmt.Errorf("step %d: gradient norm %.4g and loss %.4g (usual are %.4g and %.4g) with other samples "+
				"too, %d times in a row: the model is at fault, or the limits train.spike_norm and train.spike_loss "+
				"are too narrow", c.step, x.Norm, x.Loss, x.UsualNorm, x.UsualLoss, c.spiked.times)})
		return
	}
	x.step, x.From = c.step, c.firstAgain()
	c.spiked.from = x.From
	c.leave(ctx)
	c.back.spike = &x
	c.goBack(ctx)
}

// firstAgain is the first of the steps that are taken again with the one under way. It depends on no time
// that saves take: none before the newest save that was ordered, and none before the first of those that
// were taken again last, which were not out of the ordinary.
func (c *Coordinator) firstAgain() int64 {
	first := max(c.step-c.l.Spikes.Back+1, c.l.First)
	if n := c.l.SaveEvery; n > 0 {
		first = max(first, (c.step-1)/n*n+1)
	}
	if c.spiked.from <= c.step {
		first = max(first, c.spiked.from)
	}
	return first
}

// placed says where the data stands behind the state that all go back to, and tells of a step that was left, once.
func (c *Coordinator) placed(ctx actors.Context) string {
	x := c.back.spike
	switch {
	case x != nil:
		if !x.told {
			ctx.Send(c.l.Observer, actors.Message{Kind: actors.Report, Text: TopicSpike, Step: x.step,
				Values: x.Values()})
		}
		if x.told = true; c.l.Aside != nil {
			return c.l.Aside(c.back.target.step, x.From, x.step)
		}
	case c.l.Place != nil:
		return c.l.Place(c.back.target.step)
	}
	return ""
}
