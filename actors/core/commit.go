package core

import (
	"fmt"
	"math"

	"github.com/lfactor/lfactor/actors"
)

// A step is committed in two rounds. Every rank reduces its gradients, keeps them, and sends Ready with its values of the step so far, as
// Closed has them, and the squared norms of the parameters that it counts. When all are ready the coordinator, alone, decides the step: it sends everyone the same Commit, and
// only then do parameters change. A rank that is lost before Commit leaves every other at the step before; one that is lost
// afterwards leaves a step that is decided, whoever has heard of it.

// count takes in that a rank is ready; with the last one the step is committed.
func (c *Coordinator) count(ctx actors.Context, m *actors.Message) {
	i, ok := c.place[m.From]
	switch {
	case !ok || m.Step != c.step || c.left == 0:
		panic(fmt.Sprintf("core: actor %d is ready for step %d while step %d runs", m.From, m.Step, c.step))
	case c.ready[i] != nil:
		panic(fmt.Sprintf("core: rank %d is ready for step %d twice", i, m.Step))
	case c.l.Norms != nil && len(m.Values) != ClosedLen+len(c.l.Norms[i]):
		panic(fmt.Sprintf("core: rank %d reports %d norms, it counts %d parameters", i, len(m.Values)-ClosedLen, len(c.l.Norms[i])))
	}
	if c.ready[i] = m.Values; m.Values == nil {
		c.ready[i] = []float64{}
	}
	if c.unready--; c.unready > 0 {
		return
	}
	c.verdict = c.decide()
	for _, r := range c.l.Ranks {
		ctx.Send(r, actors.Message{Kind: actors.Commit, Epoch: c.epoch, Step: c.step, Values: c.verdict})
	}
}

// decide makes the scalars of the update: the global norm is summed over ranks and then over parameters, so that it has one order on
// any cut of the model.
func (c *Coordinator) decide() []float64 {
	clear(c.norms)
	for i, list := range c.l.Norms {
		for k, p := range list {
			for int(p) >= len(c.norms) {
				c.norms = append(c.norms, 0)
			}
			c.norms[p] += c.ready[i][ClosedLen+k]
		}
	}
	sum := 0.0
	for _, x := range c.norms {
		sum += x
	}
	v := make([]float64, CommitLen)
	v[CommitNorm], v[CommitFactor], v[CommitOverflow] = ClipFactor(sum, c.l.LossScale.Scale, c.l.Clip)
	v[CommitLR], v[CommitUpdate] = c.l.LR(c.step), float64(c.updates+1)
	return v
}

// ClipFactor is the global gradient norm of scaled gradients whose squares sum to sum, and the factor that unscales them and keeps the
// norm within limit (0 for no limit), as torch.nn.utils.clip_grad_norm_ does; a norm that is not finite gives factor 0 and overflow 1.
func ClipFactor(sum, scale, limit float64) (norm, factor, overflow float64) {
	norm, factor = math.Sqrt(sum)/scale, 1/scale
	switch {
	case math.IsNaN(norm) || math.IsInf(norm, 0):
		return norm, 0, 1
	case limit > 0 && norm > limit:
		factor *= limit / (norm + 1e-6)
	}
	return norm, factor, 0
}
