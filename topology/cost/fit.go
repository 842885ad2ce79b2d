package cost

import (
	"fmt"
	"math"
	"slices"
)

// Calibrate fits the constants to measured steps, within their bounds: a pattern search over their logarithms
// that takes only steps which lessen the mean relative error (with a tenth of its root mean square). It is
// deterministic.
func Calibrate(rows []Measured, slots Slots) (*Constants, error) {
	if len(rows) == 0 {
		return nil, fmt.Errorf("calibration: no rows")
	}
	long := make([]float64, len(rows))
	for i := range rows {
		var err error
		if long[i], err = slots(rows[i].PP, rows[i].Microbatches()); err != nil {
			return nil, err
		}
		if !(rows[i].Seconds > 0) {
			return nil, fmt.Errorf("calibration: row %d has no measured time", i)
		}
	}
	loss := func(k *Constants) float64 {
		sum, square := 0.0, 0.0
		for i := range rows {
			e := math.Abs(k.Predict(&rows[i], long[i]).Sum()/rows[i].Seconds - 1)
			sum, square = sum+e, square+e*e
		}
		n := float64(len(rows))
		return sum/n + 0.1*math.Sqrt(square/n)
	}
	return search(loss), nil
}

// search looks for the constants of least loss.
func search(loss func(k *Constants) float64) *Constants {
	var k, step Constants
	for j, c := range ConstantTable {
		k[j], step[j] = c.Start, 0.5
	}
	const rounds, smallest = 250, 1e-4
	best := loss(&k)
	for range rounds {
		for j := range k {
			moved := false
			for _, sign := range []float64{1, -1} {
				c := k
				c[j] = max(ConstantTable[j].Least, min(ConstantTable[j].Most, c[j]*math.Exp(sign*step[j])))
				if x := loss(&c); x < best {
					k, best, moved = c, x, true
					break
				}
			}
			if moved {
				step[j] = min(2, 1.5*step[j])
			} else {
				step[j] = max(smallest, 0.6*step[j])
			}
		}
		if slices.Max(step[:]) == smallest {
			break
		}
	}
	return &k
}

// Fold deals a row to one of n folds by its columns, so that folds do not depend on the order of rows.
func (r *Measured) Fold(n int) int {
	h := uint64(14695981039346656037)
	for _, v := range []int{r.GPUs, r.Batch, r.Micro, r.Hidden, r.Heads, r.Layers, r.Seq, r.TP, r.DP, r.PP} {
		h = (h ^ uint64(v)) * 1099511628211
	}
	return int((h >> 32) % uint64(n))
}

// CrossValidate predicts the seconds of every row by constants that were fitted without its fold.
func CrossValidate(rows []Measured, folds int, slots Slots) ([]float64, error) {
	out := make([]float64, len(rows))
	for f := range folds {
		var train []Measured
		for _, r := range rows {
			if r.Fold(folds) != f {
				train = append(train, r)
			}
		}
		k, err := Calibrate(train, slots)
		if err != nil {
			return nil, err
		}
		for i := range rows {
			if rows[i].Fold(folds) == f {
				n, err := slots(rows[i].PP, rows[i].Microbatches())
				if err != nil {
					return nil, err
				}
				out[i] = k.Predict(&rows[i], n).Sum()
			}
		}
	}
	return out, nil
}

// Errors are the relative errors of predicted seconds, without their signs.
func Errors(rows []Measured, predicted []float64) []float64 {
	out := make([]float64, len(rows))
	for i := range rows {
		out[i] = math.Abs(predicted[i]/rows[i].Seconds - 1)
	}
	return out
}

// Regrets says what choosing plans by predicted seconds costs: of each model, number of devices and global
// batch of which at least two plans were measured, how much slower the plan of least predicted time is than
// the fastest, relative to that.
func Regrets(rows []Measured, predicted []float64) (out []float64) {
	type question struct{ gpus, batch, hidden, layers, seq int }
	choices := map[question][]int{}
	var asked []question
	for i, r := range rows {
		q := question{r.GPUs, r.Batch, r.Hidden, r.Layers, r.Seq}
		if choices[q] = append(choices[q], i); len(choices[q]) == 2 {
			asked = append(asked, q)
		}
	}
	for _, q := range asked {
		chosen, fastest := choices[q][0], math.Inf(1)
		for _, i := range choices[q] {
			if predicted[i] < predicted[chosen] {
				chosen = i
			}
			fastest = min(fastest, rows[i].Seconds)
		}
		out = append(out, rows[chosen].Seconds/fastest-1)
	}
	return out
}

// Quantiles of relative errors: mean, median and the worst.
func Quantiles(errs []float64) (mean, median, worst float64) {
	if len(errs) == 0 {
		return
	}
	s := slices.Sorted(slices.Values(errs))
	for _, e := range s {
		mean += e / float64(len(s))
	}
	return mean, s[len(s)/2], s[len(s)-1]
}
