package cost

import (
	"fmt"
	"math"
	"slices"
)

// Calibrate fits the constants to measured steps, within their bounds: a pattern search over their logarithms
// that takes only steps which lessen the mean relative error (with a tenth of its root mean square, and with
// prior for how far they lie from what data sheets say). It is deterministic.
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
		far := 0.0
		for j, c := range ConstantTable {
			d := math.Log(k[j] / c.Start)
			if c.Sheet {
				d *= sheet
			}
			far += d * d
		}
		return sum/n + 0.1*math.Sqrt(square/n) + prior*far/n
	}
	return search(loss), nil
}

// prior is what a constant that is e times what it began as weighs, beside the relative error of one row: it
// keeps constants where they were of which few rows tell, and gives way where ten rows agree.
const prior = 0.1

// sheet is how many times farther from its start a constant of a data sheet counts. From 5 to 12 errors of
// rows that were left out are about the same; with 1, rows that stand apart (docs/simulation.md) have
// gradients take twice the time that all rows together say.
const sheet = 8

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
		q := question{gpus: r.GPUs, batch: r.Batch, hidden: r.Hidden, layers: r.Layers, seq: r.Seq}
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
