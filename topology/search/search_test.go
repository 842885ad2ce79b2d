package search

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/pipeline/schedule"
)

// cases are the committed grid: pipelines whose stages differ, under several limits of memory.
func cases() (out []schedule.Shape) {
	for i := range 64 {
		r := rand.New(rand.NewPCG(uint64(i), 3))
		p := []int{4, 6, 8, 12}[i%4]
		s := schedule.Shape{Ranks: p, Micro: p * (2 + i%3),
			Memory: float64(p) * []float64{1, 1.25, 1.5, 2}[i/4%4]}
		c := plan.Costs{Comm: r.Float64()}
		for range p {
			c.F = append(c.F, 8+4*r.Float64())
			c.I = append(c.I, 8+5*r.Float64())
			c.W = append(c.W, 5+5*r.Float64())
		}
		s.Costs = &c
		out = append(out, s)
	}
	return
}

// TestNeverWorse: on the whole grid the search is at least as good as the best registered schedule, which
// includes the published automatic ones, in at least 10 cases better, and keeps within memory.
func TestNeverWorse(t *testing.T) {
	better := 0
	for i, s := range cases() {
		known, err := Registered(s, schedule.Longest)
		require.NoError(t, err)
		got, err := Schedule(s, schedule.Longest)
		require.NoError(t, err)
		require.NoError(t, got.Program.Check())
		require.LessOrEqual(t, got.Time, known.Time, "case %d", i)
		for _, peak := range got.Program.Peak() {
			require.LessOrEqual(t, peak, int(2*s.Memory))
		}
		if got.Time < known.Time*(1-1e-9) {
			better++
		}
	}
	t.Logf("better in %d of %d cases", better, len(cases()))
	require.GreaterOrEqual(t, better, 10)
}

// BenchmarkSearch is one case of 32 ranks and 256 microbatches on one core.
func BenchmarkSearch(b *testing.B) {
	s := schedule.Shape{Ranks: 32, Micro: 256, Memory: 48, Costs: &plan.Costs{Comm: .4}}
	for r := range 32 {
		s.Costs.F, s.Costs.I, s.Costs.W = append(s.Costs.F, 10+float64(r%3)),
			append(s.Costs.I, 10+float64(r%5)), append(s.Costs.W, 7+float64(r%2))
	}
	began := time.Now()
	for b.Loop() {
		if _, err := Schedule(s, schedule.Longest); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(time.Since(began).Seconds()/float64(b.N), "s/case")
}

func TestImpossible(t *testing.T) {
	c := plan.Costs{}
	_, err := Schedule(schedule.Shape{Ranks: 4, Micro: 8, Memory: 0.5, Costs: &c}, schedule.Longest)
	require.ErrorContains(t, err, "fits")
}
