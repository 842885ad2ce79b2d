package dataset

import (
	"math"
	"slices"
)

// LossWeight is how much a trained token of a sample of n trained tokens counts: InternVL 2.5's reweighting
// of losses (arXiv:2412.05271). Samples that are packed into one row are weighed apart.
type LossWeight string

// The weights. WeightSquare lies between the other two: long answers count more than short ones, but less
// than by their length.
const (
	WeightToken  LossWeight = "token"  // 1: every token counts alike
	WeightSample LossWeight = "sample" // 1/n: every sample counts alike
	WeightSquare LossWeight = "square" // 1/√n: a sample counts as the root of its length
)

// of is the weight of each of n trained tokens.
func (w LossWeight) of(n int) float64 {
	switch {
	case n == 0:
		return 0
	case w == WeightSample:
		return 1 / float64(n)
	case w == WeightSquare:
		return 1 / math.Sqrt(float64(n))
	}
	return 1
}

// LossMean is over what the losses of a step's trained tokens are averaged.
type LossMean string

// The means.
const (
	MeanToken      LossMean = "token"      // all tokens of the step
	MeanMicrobatch LossMean = "microbatch" // those of each microbatch, and then all microbatches
	// those of the k-th microbatches of all replicas together, and then all k
	MeanRound LossMean = "round"
)

// Weighting makes the loss of a step out of the losses of its tokens.
type Weighting struct {
	Weight LossWeight
	Mean   LossMean
}

// Weigh returns what each token's loss is multiplied with, for the microbatches of one rank, given the
// shares of all data-parallel ranks: the step's loss is the sum of the products. The factors of a step add
// up to 1, unless some microbatch or round has samples and nothing to learn: it adds nothing, as in Megatron-LM. What
// fills a last step up is no microbatch of the means. They are [Rows · SeqLen] each, 0 where the label is IgnoreLabel.
func (w Weighting) Weigh(shares [][]Batch, rank int) [][]float32 {
	norms := w.norms(shares)
	out := make([][]float32, len(shares[rank]))
	for k := range shares[rank] {
		b := &shares[rank][k]
		out[k] = make([]float32, len(b.Labels))
		for s := range b.SampleIDs {
			each := w.Weight.of(b.trained(s))
			for i := b.CuSeqlens[s]; i < b.CuSeqlens[s+1]; i++ {
				if b.Labels[i] != IgnoreLabel {
					out[k][i] = float32(each / norms[rank][k])
				}
			}
		}
	}
	return out
}

// norms is what the weights of each rank's microbatches are divided by.
func (w Weighting) norms(shares [][]Batch) [][]float64 {
	sums, micros, all := make([][]float64, len(shares)), 0, 0.0
	round, filled := map[int]float64{}, map[int]bool{} // by the place of a round
	for r, share := range shares {
		sums[r] = make([]float64, len(share))
		for k := range share {
			if slices.ContainsFunc(share[k].SampleIDs, func(id int64) bool { return id >= 0 }) {
				micros, filled[k] = micros+1, true
			}
			sums[r][k] = w.sum(&share[k])
			all, round[k] = all+sums[r][k], round[k]+sums[r][k]
		}
	}
	for _, of := range sums {
		for k := range of {
			switch w.Mean {
			case MeanToken:
				of[k] = all
			case MeanRound:
				of[k] = round[k] * float64(len(filled))
			default:
				of[k] *= float64(micros)
			}
		}
	}
	return sums
}

// sum adds up the weights of a microbatch.
func (w Weighting) sum(b *Batch) (sum float64) {
	if w.Weight == WeightToken {
		return float64(b.LossTokens)
	}
	for s := range b.SampleIDs {
		n := b.trained(s)
		sum += float64(n) * w.Weight.of(n)
	}
	return sum
}

// trained counts the labels of segment s that are not IgnoreLabel.
func (b *Batch) trained(s int) (n int) {
	for _, l := range b.Labels[b.CuSeqlens[s]:b.CuSeqlens[s+1]] {
		if l != IgnoreLabel {
			n++
		}
	}
	return n
}
