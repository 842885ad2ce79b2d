package dashboard

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
)

// TestSums: windows that are drawn from blocks say what values say, wherever they begin and end, and behind steps that
// were taken again.
func TestSums(t *testing.T) {
	s := newSeries()
	add := func(from, to int) {
		for n := from; n <= to; n++ {
			loss := float64((n*7919)%101) - 50
			if n%5 == 0 {
				loss = -1 // what JSON cannot hold
			}
			s.add(&run.Metrics{Step: int64(n), Loss: loss, Seconds: 1})
		}
	}
	add(1, 1000)
	add(700, 900)
	add(901, 1300)
	for from := 0; from < 1300; from += 37 {
		for to := from + 1; to <= 1300; to += 41 {
			got, want := s.over(0, from, to), sumOf(s.cols[0][from:to])
			require.Equal(t, want, got, "%d to %d", from, to)
		}
	}
}
