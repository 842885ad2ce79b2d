package run

import (
	"fmt"
	"sync"
	"time"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/pack"
)

// Steps of a run whose times the cost of balancing is fitted to, as in LoongForge; the first two warm up.
const (
	fitFirst = 3
	fitLast  = 12
)

// balance shares the microbatches of steps out among data-parallel ranks by their work, and measures what work costs.
// The cost in use never changes within a run, so that runs stay alike; what was measured is told, for the next one.
type balance struct {
	cost pack.Cost
	size int
	both bool // by the cost of a vision tower as well

	mu     sync.Mutex
	of     *dataset.Batch // the first of the step that shares are of
	shares [][]dataset.Batch

	steps []pack.Observed
	last  time.Time
}

// newBalance takes the cost from data.balance_cost, or from the width of the model.
func newBalance(given []float64, hidden, size int) *balance {
	b := &balance{cost: pack.ModelCost(hidden), size: size}
	if len(given) == 3 {
		b.cost = pack.Cost{A: given[0], B: given[1], C: given[2]}
	}
	return b
}

// all are the shares of a step, worked out once for all who ask.
func (b *balance) all(batches []dataset.Batch) [][]dataset.Batch {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(batches) == 0 || b.of != &batches[0] {
		by := dataset.ShareEvenly
		if b.both {
			by = dataset.ShareBoth
		}
		b.shares, b.of = by(batches, b.size, b.cost), nil
		if len(batches) > 0 {
			b.of = &batches[0]
		}
	}
	return b.shares
}

// observe takes the time of a committed step. Behind the last step of the fit it returns what to tell.
func (b *balance) observe(step int64, batches []dataset.Batch, now time.Time) string {
	since := now.Sub(b.last)
	first := b.last.IsZero()
	b.last = now
	if first || step < fitFirst || step > fitLast {
		return ""
	}
	o := pack.Observed{Milliseconds: float64(since.Microseconds()) / 1000}
	for _, share := range b.all(batches) {
		var w pack.RankWork
		for _, m := range share {
			for i, id := range m.SampleIDs {
				if id >= 0 {
					w.Add(int(m.CuSeqlens[i+1] - m.CuSeqlens[i]))
				}
			}
		}
		o.Ranks = append(o.Ranks, w)
	}
	if b.steps = append(b.steps, o); step < fitLast {
		return ""
	}
	c, err := pack.Fit(b.steps)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("steps %d to %d took %.3g·l² + %.3g·l + %.3g ms for samples of l tokens; to balance by that: "+
		"data.balance_cost: [%.4g, %.4g, %.4g]", fitFirst, fitLast, c.A, c.B, c.C, c.A, c.B, c.C)
}
