package dataset

import (
	"math"
)

// Weighted is a source and how much of the samples it gives, in proportion to the weights of the others.
type Weighted struct {
	Source Source
	Weight float64
}

// blend picks which source gives the next sample: the one that lags most behind its share. It is the rule of
// Megatron-LM's build_blending_indices, ties to the first, in the same floating-point order, so the picks are the same.
type blend struct {
	shares []float64
	taken  []int64 // samples so far
	total  int64
}

// newBlend turns the weights of the sources into shares of 1, with nothing taken from any source yet.
func newBlend(sources []Weighted) blend {
	b := blend{shares: make([]float64, len(sources)), taken: make([]int64, len(sources))}
	sum := 0.0
	for _, s := range sources {
		sum += s.Weight
	}
	for i, s := range sources {
		b.shares[i] = s.Weight / sum
	}
	return b
}

// next returns the source of the next sample among those that have more and counts the sample, or -1 if none has.
func (b *blend) next(ended []bool) int {
	at := max(float64(b.total), 1)
	best, most := -1, math.Inf(-1)
	for i, share := range b.shares {
		if lag := share*at - float64(b.taken[i]); lag > most && !ended[i] {
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
