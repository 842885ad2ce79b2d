package run

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// The warm-up fit finds the cost that the steps' times follow, and says how to use it; the cost in use stays.
func TestBalanceFit(t *testing.T) {
	b := newBalance([]float64{0, 1, 0}, 64, 2)
	now := time.Unix(1000, 0)
	said := ""
	for step := range int64(20) {
		var batches []dataset.Batch
		worst := [2]float64{}
		for m := range 4 {
			n := int32(100 + (int(step)*37+m*53)%400)
			batches = append(batches, dataset.Batch{Rows: 1, SeqLen: 1024, CuSeqlens: []int32{0, n, 1024},
				SampleIDs: []int64{int64(m), -1}})
		}
		for r := range 2 {
			for _, m := range b.all(batches)[r] {
				l := float64(m.CuSeqlens[1])
				worst[r] += 2e-4*l*l + .1*l
			}
		}
		now = now.Add(time.Duration(max(worst[0], worst[1]) * float64(time.Millisecond)))
		if s := b.observe(step+1, batches, now); s != "" {
			require.Empty(t, said)
			require.EqualValues(t, fitLast, step+1)
			said = s
		}
	}
	_, list, ok := strings.Cut(said, "data.balance_cost: ")
	require.True(t, ok, said)
	var x, y, z float64
	_, err := fmt.Sscanf(list, "[%g, %g, %g]", &x, &y, &z)
	require.NoError(t, err)
	require.InEpsilon(t, 2e-4, x, .05)
	require.InEpsilon(t, .1, y, .05)
	require.Zero(t, b.cost.A)
	require.True(t, strings.HasPrefix(said, "steps 3 to 12"))
}
