package calibrate

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/topology/collective"
	"github.com/lfactor/lfactor/topology/cost"
)

// described skips what a machine that other programs keep busy cannot show, and takes no other error.
func described(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "could not be described in 6 rounds") {
		t.Skipf("skipped: %v", err)
	}
	require.NoError(t, err)
}

// TestCalibrate: this machine gets a description, unless other programs keep it too busy for one, which is said;
// TestFitRates and TestSettle hold what a description is made of.
func TestCalibrate(t *testing.T) {
	_, _, err := Calibrate("abacus", 1, tensor.F32)
	require.ErrorContains(t, err, `device "abacus": this build has`)
	m, fit, err := Calibrate("cpu", 1, tensor.F32)
	described(t, err)
	require.Positive(t, fit.Segments)
	require.Greater(t, m.Flops, 1e8)
	require.Greater(t, m.Bandwidth, 1e7)
}

// TestFitRates: rates that made the times of segments are found again, whatever one segment in ten was held
// up by, and what is reported is the mean error of the others.
func TestFitRates(t *testing.T) {
	truth := cost.Machine{Flops: 80e9, Bandwidth: 25e9, Overhead: 5e-6, Efficiency: 1, Stream: 1}
	var all []Timed
	for i := range 200 {
		s := Timed{Flops: float64(1+i%7) * 3e7, Bytes: float64(1+i%5) * 2e6, Calls: float64(1 + i%11)}
		s.Seconds = truth.Segment(int64(s.Flops), int64(s.Bytes), int(s.Calls)) * (1 + 0.02*float64(i%3-1))
		if i%10 == 9 {
			s.Seconds *= 5
		}
		all = append(all, s)
	}
	m := &cost.Machine{Efficiency: 1, Stream: 1}
	fit := FitRates(m, all)
	require.Equal(t, 200, fit.Segments)
	require.InEpsilon(t, 80e9, m.Flops, 0.03)
	require.InEpsilon(t, 25e9, m.Bandwidth, 0.05)
	require.InEpsilon(t, 5e-6, m.Overhead, 0.1)
	require.InDelta(t, 0.02*2/3, fit.Error, 0.0008, "of the nine in ten that nothing held up")
}

// TestMeasure: the segments of three steps of two microbatches, none of the first step, whose costs are
// those that the simulator sees.
func TestMeasure(t *testing.T) {
	b, err := kernels.Open("cpu", kernels.Options{Threads: 1})
	require.NoError(t, err)
	defer kernels.Close(b)
	all, err := measure(b, 64, 32, tensor.F32)
	require.NoError(t, err)
	require.Len(t, all, 3*2*2, "a forward and a backward of each microbatch")
	for _, s := range all {
		require.Positive(t, s.Flops)
		require.Positive(t, s.Bytes)
		require.Greater(t, s.Calls, 4*8.0, "four layers")
		require.Positive(t, s.Seconds)
	}
	require.Len(t, Quietest(all), 2, "a forward and a backward, the quickest")
	m, fit, err := calibrate(b, []int{32, 64}, 16, tensor.F32)
	if err == nil {
		require.Equal(t, 2*2, fit.Segments, "a forward and a backward of each width, the quickest")
	} else { // other programs keep the machine too busy for rates that agree
		require.ErrorContains(t, err, "could not be described in 6 rounds")
	}
	require.Equal(t, cost.Machine{Name: "measured", Memory: 4 << 30, Efficiency: 1, Stream: 1, Devices: 64,
		Hosts: 1,
		Copy:  4e9, Flops: m.Flops, Bandwidth: m.Bandwidth, Overhead: m.Overhead,
		Local:  collective.Link{Latency: 20e-6, PerByte: 0.25e-9},
		Remote: collective.Link{Latency: 50e-6, PerByte: 1e-9}}, *m,
		"what is not measured is said to be usual")
}

// TestRandomBatches: microbatches are whole sequences whose weights add up to one, and steps differ.
func TestRandomBatches(t *testing.T) {
	get := RandomBatches(2, 8, 50)
	a, err := get(1, 0)
	require.NoError(t, err)
	again, err := get(1, 0)
	require.NoError(t, err)
	require.Equal(t, a, again)
	b, err := get(2, 0)
	require.NoError(t, err)
	require.NotEqual(t, a[0].IDs, b[0].IDs)
	require.Len(t, a, 2)
	sum := float32(0)
	for _, m := range a {
		require.Equal(t, []int32{0, 8}, m.Cu)
		require.Equal(t, []int32{0, 1, 2, 3, 4, 5, 6, 7}, m.Positions)
		require.Len(t, m.IDs, 8)
		require.Len(t, m.Targets, 8)
		for k := range m.IDs {
			require.Less(t, max(m.IDs[k], m.Targets[k]), int32(50))
			sum += m.Weights[k]
		}
	}
	require.InDelta(t, 1, sum, 1e-6)
}
