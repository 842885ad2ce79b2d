package calibrate

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/cost"
)

// segmentsOf are segments of several sizes as a machine would run them; slow says how much slower one is.
func segmentsOf(m *cost.Machine, slow func(i int) float64) (out []Timed) {
	for i := range 40 {
		s := Timed{Flops: float64(1+i%7) * 3e7, Bytes: float64(1+i%5) * 2e6, Calls: float64(1 + i%11)}
		s.Seconds = m.Segment(int64(s.Flops), int64(s.Bytes), int(s.Calls)) * slow(i)
		out = append(out, s)
	}
	return
}

// TestSettle: on a machine where every second segment is held up at random, rounds are measured until the
// quickest ones tell its rates.
func TestSettle(t *testing.T) {
	truth := &cost.Machine{Flops: 80e9, Bandwidth: 25e9, Overhead: 5e-6, Efficiency: 1, Stream: 1}
	r := rand.New(rand.NewPCG(1, 2))
	m := &cost.Machine{Efficiency: 1, Stream: 1}
	fit, err := settle(m, func() ([]Timed, error) {
		return segmentsOf(truth, func(int) float64 {
			if r.IntN(2) == 0 {
				return 1 + 3*r.Float64()
			}
			return 1
		}), nil
	})
	require.NoError(t, err)
	require.Greater(t, fit.Rounds, 1, "one fit alone is not believed")
	require.InEpsilon(t, truth.Flops, m.Flops, 0.1)
	require.InEpsilon(t, truth.Bandwidth, m.Bandwidth, 0.15)
}

// TestUnsettled: rates that never come together, and such as no device has, are refused with the reason.
func TestUnsettled(t *testing.T) {
	m := &cost.Machine{Efficiency: 1, Stream: 1}
	round := 0
	_, err := settle(m, func() ([]Timed, error) { // ever quicker, so that the quickest are new ones each time
		round++
		x := &cost.Machine{Flops: 1e9 * float64(int(1)<<round), Bandwidth: 1e9, Overhead: 1e-6, Efficiency: 1, Stream: 1}
		return segmentsOf(x, func(int) float64 { return 1 }), nil
	})
	require.ErrorContains(t, err, "could not be described in 6 rounds: arithmetic was")
	require.ErrorContains(t, err, "stop other programs")
	_, err = settle(m, func() ([]Timed, error) { // a clock that hardly moves
		return segmentsOf(&cost.Machine{Flops: 1e20, Bandwidth: 1e20, Overhead: 1e-15, Efficiency: 1, Stream: 1},
			func(int) float64 { return 1 }), nil
	})
	require.ErrorContains(t, err, "is none that a device has")
	_, err = settle(m, func() ([]Timed, error) { return nil, errors.New("broken") })
	require.EqualError(t, err, "broken")
}

// TestLoadWarning: other programs are named from a tenth of the processors on.
func TestLoadWarning(t *testing.T) {
	require.Empty(t, Fit{Others: 0.05}.Warning())
	require.Contains(t, Fit{Others: 0.4}.Warning(), "40 % of the processors")
}
