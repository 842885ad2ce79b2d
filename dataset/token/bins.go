package token

import "math"

// Bins are tokens of actions from -1 to 1 as RT-2 (arXiv:2307.15818) and OpenVLA have them: each number is one
// of 255 steps, and a step is one of the last tokens of a language model's vocabulary.
type Bins struct {
	Vocab int // tokens of the language model
}

// binEdges is how many edges the steps have; values on the last one have a token of their own.
const binEdges = 256

// Encode gives a token for each number. Numbers outside of -1 to 1 are taken for these; one that is none is
// taken for -1.
func (b Bins) Encode(action []float64) []int32 {
	out := make([]int32, len(action))
	for i, v := range action {
		v = min(max(v, -1), 1)
		if math.IsNaN(v) {
			v = -1
		}
		// the number of edges at or below v: rounding may put v on the wrong side of one
		n := min(max(int((v+1)*(binEdges-1)/2), 0), binEdges-1)
		for n+1 < binEdges && binEdge(n+1) <= v {
			n++
		}
		for n > 0 && binEdge(n) > v {
			n--
		}
		out[i] = int32(b.Vocab - n - 1)
	}
	return out
}

// Decode gives the middle of each token's step; the last step stands for tokens of none as well.
func (b Bins) Decode(ids []int32) []float64 {
	out := make([]float64, len(ids))
	for i, id := range ids {
		n := min(max(b.Vocab-int(id)-1, 0), binEdges-2)
		out[i] = (binEdge(n) + binEdge(n+1)) / 2
	}
	return out
}

// binEdge is an edge as numpy.linspace(-1, 1, 256) has it.
func binEdge(i int) float64 {
	if i == binEdges-1 {
		return 1
	}
	return float64(float64(i)*(2.0/(binEdges-1))) - 1
}
