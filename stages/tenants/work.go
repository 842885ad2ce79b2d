package tenants

import (
	"errors"
	"fmt"
	"math"
)

// Datum is a sequence: Tokens, of each the token that is to follow, Targets, and what the loss reads of it, one
// number a token or none.
type Datum struct {
	Tokens     []int32   `json:"tokens"`
	Targets    []int32   `json:"targets"`
	Weights    []float32 `json:"weights"`    // of a token in the loss; none is 1
	LogProbs   []float32 `json:"logprobs"`   // under the policy that drew the targets
	Advantages []float32 `json:"advantages"` // of them
}

// Loss is a sum over tokens: of -w·log p, of a policy's -w·A·p/p', or of the latter's clipped form.
type Loss string

// The losses.
const (
	CrossEntropy       Loss = "cross_entropy"
	ImportanceSampling Loss = "importance_sampling"
	PPO                Loss = "ppo" // arXiv:1707.06347
)

// Work is what is asked of a slot: the log-probabilities of targets, and with Backward the gradient of a loss, which
// is added to the slot's.
type Work struct {
	Slot     int
	Data     []Datum
	Loss     Loss
	Clip     [2]float64 // of PPO: how far a ratio may be below and above 1
	Backward bool

	pieces [][2]int // of Data, computed one after the other
	done   int      // pieces
	result Result
	err    error
}

// Result is what came of work.
type Result struct {
	Loss     float64     // the sum over tokens
	LogProbs [][]float32 // of each datum's targets
}

// check says what is wrong with work on a model of a vocabulary.
func (w *Work) check(vocab, rows int) error {
	if len(w.Data) == 0 {
		return errors.New("there is no data")
	}
	switch w.Loss {
	case CrossEntropy, ImportanceSampling:
	case PPO:
		if !(w.Clip[0] >= 0 && w.Clip[0] <= 1 && w.Clip[1] >= 0) || math.IsInf(w.Clip[1], 0) {
			return fmt.Errorf("clip is %v, and not how far a ratio may be below and above 1", w.Clip)
		}
	default:
		return fmt.Errorf("the loss is %.40q, and none of %s, %s and %s", w.Loss, CrossEntropy, ImportanceSampling, PPO)
	}
	for i, d := range w.Data {
		n := len(d.Tokens)
		if n == 0 || n > rows {
			return fmt.Errorf("datum %d has %d tokens, and not from 1 to %d", i, n, rows)
		}
		if len(d.Targets) != n {
			return fmt.Errorf("datum %d has %d tokens and %d targets", i, n, len(d.Targets))
		}
		for _, ids := range [][]int32{d.Tokens, d.Targets} {
			for k, id := range ids {
				if id < 0 || int(id) >= vocab {
					return fmt.Errorf("datum %d: token %d is id %d, and the model has the ids 0 to %d", i, k,
						id, vocab-1)
				}
			}
		}
		for name, v := range map[string][]float32{"weights": d.Weights, "logprobs": d.LogProbs,
			"advantages": d.Advantages} {
			if err := column(name, v, n, w.Loss); err != nil {
				return fmt.Errorf("datum %d: %w", i, err)
			}
		}
	}
	return nil
}

// column says what is wrong with numbers of a datum.
func column(name string, v []float32, n int, loss Loss) error {
	needed := loss != CrossEntropy && name != "weights"
	switch {
	case len(v) == 0 && !needed:
		return nil
	case loss == CrossEntropy && name != "weights":
		return fmt.Errorf("%s has no effect on %s", name, loss)
	case len(v) != n:
		return fmt.Errorf("there are %d %s for %d tokens", len(v), name, n)
	}
	for k, x := range v {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("%s: number %d is none", name, k)
		}
	}
	return nil
}

// cut divides the data into pieces of at most rows tokens, by the work alone: so sums have one order whatever
// else is computed.
func (w *Work) cut(rows int) {
	from, n := 0, 0
	w.pieces = nil
	for i, d := range w.Data {
		if n > 0 && n+len(d.Tokens) > rows {
			w.pieces, from, n = append(w.pieces, [2]int{from, i}), i, 0
		}
		n += len(d.Tokens)
	}
	w.pieces = append(w.pieces, [2]int{from, len(w.Data)})
}

// tokens of the next piece.
func (w *Work) tokens() (n int) {
	for _, d := range w.Data[w.pieces[w.done][0]:w.pieces[w.done][1]] {
		n += len(d.Tokens)
	}
	return n
}

// token is the loss of a token and its derivative by minus the log-probability.
func (w *Work) token(d *Datum, k int, lp float32) (loss, by float64) {
	weight := 1.0
	if len(d.Weights) > 0 {
		weight = float64(d.Weights[k])
	}
	if w.Loss == CrossEntropy {
		return -weight * float64(lp), weight
	}
	ratio, a := math.Exp(float64(lp)-float64(d.LogProbs[k])), float64(d.Advantages[k])
	if w.Loss == PPO {
		if clipped := min(max(ratio, 1-w.Clip[0]), 1+w.Clip[1]); clipped*a < ratio*a {
			return -weight * clipped * a, 0
		}
	}
	return -weight * ratio * a, weight * ratio * a
}
