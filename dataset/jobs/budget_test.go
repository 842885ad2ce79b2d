package jobs

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset"
)

// Entries of many bytes never hold more than the budget and one entry together, and none waits for ever:
// neither for those behind it nor when the work ends early.
func TestByteBudget(t *testing.T) {
	for _, stop := range []int64{200, 50} {
		ctx, cancel := context.WithCancel(context.Background())
		b := newByteBudget(100, 0)
		defer b.closeWith(ctx)()
		var held atomic.Int64
		size := func(i int64) int64 { return 10 + i*37%90 }
		err := dataset.Ordered(ctx, 0, 200, &dataset.Meter{Workers: 7}, func(i int64) int64 {
			b.take(i, size(i)/2) // an entry has several files
			b.take(i, size(i)-size(i)/2)
			held.Add(size(i))
			return i
		}, func(i, v int64) error {
			if ctx.Err() == nil {
				require.LessOrEqual(t, held.Load(), int64(200))
			}
			held.Add(-size(i))
			b.written(i)
			if i == stop {
				cancel()
			}
			return nil
		})
		if stop == 200 {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
	}
}
