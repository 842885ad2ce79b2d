package dataset

import (
	"math"
)

// Weighted is a source and how much of the samples it gives, in proportion to the weights of the others.
type Weighted struct {
	Source Source
	Weight float64
}

// Ramp is how the weight of a source changes.
type Ramp struct {
	Turns  []Turn // in their order
	Linear bool   // the weight changes evenly from one of them to the next
}

// Turn is a weight from a step on; steps count from 1.
type Turn struct {
	Step   int64
	Weight float64
}

// At is the weight in a step, or between two, of one that begins as v.
func (r Ramp) At(v, step float64) float64 {
	from := 0.0
	for _, t := range r.Turns {
		to := float64(t.Step)
		if step < to && r.Linear {
			return v + (t.Weight-v)*(step-from)/(to-from)
		} else if step < to {
			return v
		}
		v, from = t.Weight, to
	}
	return v
}

// blend picks which source gives the next sample: the one that lags most behind its share. It is the rule of
// Megatron-LM's build_blending_indices, ties to the first, in the same floating-point order, so the picks are the same.
//
// Where weights change, a source is to have had its share of each sample, due, and not the share of now of them all.
type blend struct {
	*LoaderConfig
	shares []float64
	taken  []int64 // samples so far
	total  int64
	due    []float64 // nil where no weight changes
}

// newBlend turns the weights of the sources into shares of 1, at a place in the order.
func newBlend(c *LoaderConfig, at *Position) blend {
	b := blend{LoaderConfig: c, shares: make([]float64, len(c.Sources))}
	for _, s := range at.Sources {
		b.taken, b.total = append(b.taken, s.Taken), b.total+s.Taken
		if c.Ramps != nil {
			b.due = append(b.due, s.Due)
		}
	}
	b.share(0)
	return b
}

// share takes the weights of a row's step.
func (b *blend) share(row int64) {
	step, sum := 1+float64(row)/float64(max(1, b.GlobalBatch)), 0.0
	for i, s := range b.Sources {
		if b.shares[i] = s.Weight; b.Ramps != nil {
			b.shares[i] = b.Ramps[i].At(s.Weight, step)
		}
		sum += b.shares[i]
	}
	for i := range b.shares {
		b.shares[i] /= sum
	}
}

// turn takes the weights of a row, where some change, and reports whether some do at this row.
func (b *blend) turn(row int64) (here bool) {
	if b.due == nil {
		return false
	}
	b.share(row)
	for _, r := range b.Ramps {
		for _, t := range r.Turns {
			here = here || (t.Step-1)*int64(b.GlobalBatch) == row
		}
	}
	return here
}

// next returns the source of the next sample among those that have more and counts the sample, or -1 if none has.
func (b *blend) next(ended []bool) int {
	at := max(float64(b.total), 1)
	best, most := -1, math.Inf(-1)
	for i, share := range b.shares {
		lag := share*at - float64(b.taken[i])
		if b.due != nil && b.total > 0 {
			lag = b.due[i] - float64(b.taken[i])
		}
		if b.due != nil {
			b.due[i] += share
		}
		if lag > most && !ended[i] && (b.due == nil || share > 0) {
			best, most = i, lag
		}
	}
	if best < 0 {
		return best
	}
	b.taken[best]++
	b.total++
	return best
}

// undo takes the last sample of a source back, which had none.
func (b *blend) undo(source int) {
	b.taken[source]--
	b.total--
}
