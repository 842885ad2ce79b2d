package dataset

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

// PathWeight is one path of a data path and its weight.
type PathWeight struct {
	Path   string
	Weight float64
}

// ParseDataPath reads what Megatron-LM's --data-path takes: paths, or weights and paths in turn. Without
// weights all weights are 0, and the sources are to be read as one (Concat), each document once a pass.
func ParseDataPath(args []string) ([]PathWeight, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("data path: no path is given")
	}
	if _, err := strconv.ParseFloat(args[0], 64); err != nil || len(args) == 1 {
		out := make([]PathWeight, len(args))
		for i, a := range args {
			out[i].Path = a
		}
		return out, nil
	}
	if len(args)%2 != 0 {
		return nil, fmt.Errorf("data path: %d words; weights and paths must come in turn", len(args))
	}
	var out []PathWeight
	for i := 0; i < len(args); i += 2 {
		w, err := strconv.ParseFloat(args[i], 64)
		if err != nil || !(w > 0) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("data path: weight %q of %s is no positive number", args[i], args[i+1])
		}
		out = append(out, PathWeight{args[i+1], w})
	}
	return out, nil
}

// ParseSplit reads what Megatron-LM's --split takes, "969,30,1": shares of training, validation and test. It
// returns where each part begins and ends, as fractions of the whole.
func ParseSplit(s string) ([3][2]float64, error) {
	var out [3][2]float64
	var shares []float64
	sum := 0.0
	for word := range strings.SplitSeq(s, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || x < 0 || math.IsInf(x, 0) || math.IsNaN(x) {
			return out, fmt.Errorf("split %q: %q is no share", s, word)
		}
		shares = append(shares, x)
		sum += x
	}
	if len(shares) > 3 || sum == 0 {
		return out, fmt.Errorf("split %q: it must have one to three shares that are not all 0", s)
	}
	at := 0.0
	for i := range out {
		out[i][0] = at
		if i < len(shares) {
			at += shares[i] / sum
		}
		out[i][1] = min(at, 1)
	}
	return out, nil
}
