package planner

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMostUnits: the largest number that fits is found to the unit, whether peaks grow evenly, by steps or
// faster than the length, in a number of tries that grows as a bisection's.
func TestMostUnits(t *testing.T) {
	for name, peak := range map[string]func(n float64) float64{
		"even":   func(n float64) float64 { return 1000 + 7*n },
		"steps":  func(n float64) float64 { return 1000 + 4096*math.Ceil(n/900) },
		"square": func(n float64) float64 { return 1000 + n + n*n/50 },
		"flat":   func(float64) float64 { return 1000 },
	} {
		for _, most := range []int{1, 2, 1000, 1 << 17} {
			for limit := int64(900); limit < 1<<40; limit = limit*9/7 + 1 {
				want, tries := 0, 0
				for step := 1 << 20; step > 0; step /= 2 {
					if n := want + step; n <= most && int64(peak(float64(n))) <= limit {
						want = n
					}
				}
				got, at, err := mostUnits(most, limit, func(n int) (int64, error) {
					tries++
					require.True(t, n >= 1 && n <= most, n)
					return int64(peak(float64(n))), nil
				})
				require.NoError(t, err)
				require.Equal(t, want, got, "%s: limit %d of at most %d", name, limit, most)
				require.LessOrEqual(t, tries, 40)
				if got > 0 {
					require.Equal(t, int64(peak(float64(got))), at)
				}
			}
		}
	}
	bad := errors.New("bad")
	_, _, err := mostUnits(9, 9, func(n int) (int64, error) {
		return int64(n),
			map[bool]error{true: bad}[n > 3]
	})
	require.ErrorIs(t, err, bad)
}
