// Package routing chooses the experts of a token from a row of logits, and carries a gradient back to them.
// It is the one place that knows how families differ; backends share it, because which experts are chosen
// has to agree to the bit.
package routing

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Score is how logits become scores.
type Score int

// The scores that families have.
const (
	Softmax       Score = iota // over all experts
	Sigmoid                    // of each logit
	SqrtSoftplus               // √log(1+exp(logit))
	SoftmaxChosen              // over the chosen experts alone, which the logits choose
)

// Router says how a family routes. Scores, to which a bias is added for choosing only, pick the experts;
// where they lie in groups, the best groups are picked first, and the others' experts are out of the
// question. The chosen experts' scores, normalised and scaled, are their weights.
type Router struct {
	Score     Score
	Normalize bool    // weights are divided by their sum and Eps
	Floor     bool    // Eps is the least divisor instead of a term of it
	Eps       float64 // of the divisor
	Scale     float64 // factor on weights; 0 is 1
	Groups    int     // equal groups of neighbouring experts; 0 and 1 are none
	Kept      int     // groups that stay
	Best      int     // a group's score is the sum of so many of its best ones, at least 1
}

// Check reports a router that cannot choose k of so many experts.
func (r Router) Check(experts, k int) error {
	switch {
	case r.Score < Softmax || r.Score > SoftmaxChosen:
		return fmt.Errorf("score %d is none", r.Score)
	case k < 1 || k > experts:
		return fmt.Errorf("%d experts a token of %d", k, experts)
	case r.Groups <= 1:
		return nil
	case experts%r.Groups != 0:
		return fmt.Errorf("%d experts in %d groups", experts, r.Groups)
	case r.Kept < 1 || r.Kept > r.Groups || r.Kept*(experts/r.Groups) < k:
		return fmt.Errorf("%d experts a token of %d groups of %d", k, r.Kept, experts/r.Groups)
	case r.Best < 1 || r.Best > experts/r.Groups:
		return fmt.Errorf("%d best scores of groups of %d", r.Best, experts/r.Groups)
	}
	return nil
}

// Worker routes rows of one number of experts; it is not safe for concurrent use.
type Worker struct {
	r                      Router
	scores, choice, groups []float64
	order, kept            []int
	stays                  []bool // by group
}

// Worker makes one.
func (r Router) Worker(experts int) *Worker {
	n := max(1, r.Groups)
	return &Worker{r: r, scores: make([]float64, experts), choice: make([]float64, experts), groups: make([]float64, n),
		order: make([]int, 0, experts), kept: make([]int, 0, n), stays: make([]bool, n)}
}

// Row writes the chosen experts of one token, the best first, and their weights. A bias, or nil, is added to scores for
// choosing. Of equal scores the lower number wins; a score that is not a number counts as the greatest, as in PyTorch.
func (w *Worker) Row(logits, bias []float32, idx []int32, weights []float32) {
	w.Scores(logits)
	if w.r.Score == SoftmaxChosen {
		for i, l := range logits {
			w.choice[i] = float64(l)
		}
	} else {
		copy(w.choice, w.scores)
	}
	for i := range bias {
		w.choice[i] += float64(bias[i])
	}
	w.limit()
	for j, e := range w.best(w.order, w.choice, len(idx)) {
		idx[j] = int32(e)
	}
	w.weigh(idx, weights)
}

// Weigh writes the weights of experts that were chosen before.
func (w *Worker) Weigh(logits []float32, idx []int32, weights []float32) {
	w.Scores(logits)
	w.weigh(idx, weights)
}

func (w *Worker) weigh(idx []int32, weights []float32) {
	div, _ := w.divisor(idx)
	for j, e := range idx {
		weights[j] = float32(w.scores[e] / div * w.scale())
	}
}

// Scores fills and gives the scores of all experts; those of SoftmaxChosen have no divisor yet.
func (w *Worker) Scores(logits []float32) []float64 {
	switch w.r.Score {
	case Sigmoid:
		for i, l := range logits {
			w.scores[i] = sigmoid(float64(l))
		}
	case SqrtSoftplus:
		for i, l := range logits {
			w.scores[i] = math.Sqrt(softplus(float64(l)))
		}
	default:
		sum := exponentials(w.scores, logits)
		for i := range w.scores {
			if w.r.Score == Softmax {
				w.scores[i] /= sum
			}
		}
	}
	return w.scores
}

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func softplus(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// exponentials are those of logits less the greatest, and their sum.
func exponentials(dst []float64, logits []float32) (sum float64) {
	top := math.Inf(-1)
	for _, l := range logits {
		top = max(top, float64(l))
	}
	for i, l := range logits {
		dst[i] = math.Exp(float64(l) - top)
		sum += dst[i]
	}
	return sum
}

func (w *Worker) scale() float64 {
	if w.r.Scale == 0 {
		return 1
	}
	return w.r.Scale
}

// divisor is what scores of the chosen are divided by, and whether it grows with them.
func (w *Worker) divisor(idx []int32) (div float64, grows bool) {
	if !w.r.Normalize && w.r.Score != SoftmaxChosen {
		return 1, false
	}
	sum := 0.0
	for _, e := range idx {
		sum += w.scores[e]
	}
	switch {
	case w.r.Score == SoftmaxChosen:
		return sum, true
	case !w.r.Floor:
		return sum + w.r.Eps, true
	case sum < w.r.Eps:
		return w.r.Eps, false
	}
	return sum, true
}

// limit takes the experts of all but the best groups out of the choice.
func (w *Worker) limit() {
	n := w.r.Groups
	if n <= 1 {
		return
	}
	size := len(w.choice) / n
	for g := range n {
		group := w.choice[g*size : (g+1)*size]
		w.groups[g] = 0
		for _, e := range w.best(w.order, group, w.r.Best) {
			w.groups[g] += group[e]
		}
	}
	clear(w.stays)
	for _, g := range w.best(w.kept, w.groups, w.r.Kept) {
		w.stays[g] = true
	}
	for e := range w.choice {
		if !w.stays[e/size] {
			w.choice[e] = math.Inf(-1)
		}
	}
}

// best lists the places of the k greatest values, the greatest first.
func (w *Worker) best(order []int, v []float64, k int) []int {
	order = order[:0]
	for i := range v {
		at, _ := slices.BinarySearchFunc(order, i, func(a, b int) int {
			return cmp.Or(Compare(v[a], v[b]), cmp.Compare(a, b))
		})
		if at >= k {
			continue
		}
		if len(order) == k {
			order = order[:k-1]
		}
		order = slices.Insert(order, at, i)
	}
	return order
}

// Compare orders values from the greatest on; one that is not a number counts as the greatest.
func Compare(x, y float64) int {
	switch {
	case math.IsNaN(x) != math.IsNaN(y):
		if math.IsNaN(x) {
			return -1
		}
		return 1
	case x > y:
		return -1
	case x < y:
		return 1
	}
	return 0
}

// Gradient sets dlogits to the gradient of a token's logits from that of its weights. What was chosen is
// taken as given.
func (w *Worker) Gradient(logits []float32, idx []int32, dweights, dlogits []float32) {
	w.Scores(logits)
	div, grows := w.divisor(idx)
	mean := 0.0 // Σ of gradients times shares
	if grows {
		for j, e := range idx {
			mean += float64(dweights[j]) * w.scale() * w.scores[e] / div
		}
	}
	ds := w.choice // of scores
	clear(ds)
	for j, e := range idx {
		ds[e] = (float64(dweights[j])*w.scale() - mean) / div
	}
	w.back(logits, ds, dlogits)
}

// back carries the gradient of scores to logits.
func (w *Worker) back(logits []float32, ds []float64, dlogits []float32) {
	switch w.r.Score {
	case Sigmoid:
		for i, s := range w.scores {
			dlogits[i] = float32(ds[i] * s * (1 - s))
		}
	case SqrtSoftplus:
		for i, s := range w.scores {
			dlogits[i] = 0
			if ds[i] != 0 {
				dlogits[i] = float32(ds[i] * sigmoid(float64(logits[i])) / (2 * s))
			}
		}
	case SoftmaxChosen: // what a divisor carries is in ds
		for i, s := range w.scores {
			dlogits[i] = float32(ds[i] * s)
		}
	default:
		mean := 0.0
		for i, s := range w.scores {
			mean += ds[i] * s
		}
		for i, s := range w.scores {
			dlogits[i] = float32(s * (ds[i] - mean))
		}
	}
}

// Shares are the scores of a token's experts as shares of their sum: what losses of balance take as
// probabilities; top are the k best.
func (w *Worker) Shares(logits []float32, k int) (shares []float64, top []int) {
	w.Scores(logits)
	sum := 0.0
	for _, s := range w.scores {
		sum += s
	}
	for i, s := range w.scores {
		w.choice[i] = s / sum
	}
	return w.choice, w.best(w.order, w.choice, k)
}

// SharesGradient sets dlogits to the gradient of a token's logits from that of its shares.
func (w *Worker) SharesGradient(logits []float32, dshares []float64, dlogits []float32) {
	w.Scores(logits)
	sum, mean := 0.0, 0.0
	for i, s := range w.scores {
		sum += s
		mean += dshares[i] * s
	}
	ds := w.choice
	for i := range ds {
		ds[i] = (dshares[i] - mean/sum) / sum
	}
	w.back(logits, ds, dlogits)
}

// Sums adds up, over the tokens of logits, how often each expert is among the k best, and the experts' shares.
func (w *Worker) Sums(logits []float32, k int, counts, shares []float64) {
	e := len(w.scores)
	for i := 0; i < len(logits); i += e {
		s, best := w.Shares(logits[i:i+e], k)
		for _, j := range best {
			counts[j]++
		}
		for j, x := range s {
			shares[j] += x
		}
	}
}

// LogSum is log Σ exp of a token's logits; the scores of a softmax are left in scores.
func LogSum(scores []float64, logits []float32) float64 {
	sum := exponentials(scores, logits)
	top := math.Inf(-1)
	for i, l := range logits {
		top = max(top, float64(l))
		scores[i] /= sum
	}
	return top + math.Log(sum)
}
