package policies

import (
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/dataset/format/recordings"
)

// RobotScale brings states and actions to numbers about 1: v becomes (v - Mid)·By.
// In the words of the field: normalisation statistics.
type RobotScale struct{ State, Action Affine }

// Affine is a scale of each number of a vector.
type Affine struct{ Mid, By []float64 }

// least is what stands for a range or a deviation of 0, as in lerobot.
const least = 1e-8

// NewAffine is what brings numbers of some statistics to about 1: by "quantiles", "min_max" or "mean_std";
// "identity" leaves them.
func NewAffine(s recordings.RobotStats, how string) (a Affine, err error) {
	low, high := s.Q01, s.Q99
	if how == "min_max" {
		low, high = s.Min, s.Max
	}
	switch how {
	case "identity":
		n := max(len(s.Mean), len(s.Min), len(s.Q01)) // files may have one kind alone
		return Affine{make([]float64, n), slices.Repeat([]float64{1}, n)}, nil
	case "mean_std":
		low, high = s.Mean, s.Std
	}
	if len(low) == 0 || len(high) != len(low) {
		return a, fmt.Errorf("the statistics have no %s", how)
	}
	for i := range low {
		if how == "mean_std" {
			a.Mid, a.By = append(a.Mid, s.Mean[i]), append(a.By, 1/(s.Std[i]+least))
			continue
		}
		d := high[i] - low[i]
		if d == 0 {
			d = least
		}
		a.Mid, a.By = append(a.Mid, low[i]+d/2), append(a.By, 2/d)
	}
	return a, nil
}

// Of is a vector scaled.
func (a Affine) Of(v []float64) ([]float64, error) {
	if len(v) != len(a.Mid) {
		return nil, fmt.Errorf("%d numbers, and the statistics have %d", len(v), len(a.Mid))
	}
	out := make([]float64, len(v))
	for i := range v {
		out[i] = (v[i] - a.Mid[i]) * a.By[i]
	}
	return out, nil
}

// Back is the inverse of Of.
func (a Affine) Back(v []float64) []float64 {
	out := make([]float64, len(a.Mid))
	for i := range out {
		out[i] = v[i]/a.By[i] + a.Mid[i]
	}
	return out
}
