package serving

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/stages/sample"
)

// TestFit: times of steps that are made by a rule are found again, also between and beyond what was measured.
func TestFit(t *testing.T) {
	rule := func(l sample.Load) float64 {
		l = l.Class()
		return 0.01 + 0.001*float64(l.Rows) + 2e-6*float64(l.Keys) + 3e-4*float64(l.Heads)
	}
	var steps []Measured
	for _, rows := range []int{1, 2, 8, 64, 256} {
		for _, keys := range []int{64, 1000, 9000} {
			for _, heads := range []int{1, min(rows, 8), min(rows, 64)} {
				l := sample.Load{Rows: rows, Keys: keys, Heads: heads, Sequences: heads}
				steps = append(steps, Measured{l, rule(l)})
			}
		}
	}
	times, err := Fit(steps)
	require.NoError(t, err)
	for _, l := range []sample.Load{{Rows: 8, Keys: 3000, Heads: 8}, {Rows: 24, Keys: 300, Heads: 24},
		{Rows: 384, Keys: 20000, Heads: 2}} {
		require.InEpsilon(t, rule(l), times.Step(l), 0.01, "%+v", l)
	}
	_, err = Fit([]Measured{{sample.Load{}, 1}})
	require.ErrorContains(t, err, "no step was measured")
}
