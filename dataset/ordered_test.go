package dataset

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Results come in order whatever the workers, workers keep within their credits, and an error or the end of
// the context ends it with nobody left running.
func TestOrdered(t *testing.T) {
	for _, workers := range []int{0, 1, 7} {
		var running, done atomic.Int64
		used := int64(100)
		m := &Meter{Name: "square", Workers: workers}
		err := Ordered(context.Background(), 100, 1000, m, func(i int64) int64 {
			running.Add(1)
			require.LessOrEqual(t, i, atomic.LoadInt64(&used)+int64(max(1, workers)*(orderedAhead+1))+1)
			running.Add(-1)
			done.Add(1)
			return i * i
		}, func(i, v int64) error {
			require.Equal(t, atomic.LoadInt64(&used), i)
			require.Equal(t, i*i, v)
			atomic.AddInt64(&used, 1)
			return nil
		})
		require.NoError(t, err)
		require.EqualValues(t, 1000, used)
		require.EqualValues(t, 900, m.Stage().Items)
		enough := errors.New("enough")
		err = Ordered(context.Background(), 0, 1000, m,
			func(i int64) int64 { running.Add(1); defer running.Add(-1); return i }, func(i, _ int64) error {
				if i == 5 {
					return enough
				}
				return nil
			})
		require.ErrorIs(t, err, enough)
		require.Zero(t, running.Load())
		ctx, cancel := context.WithCancel(context.Background())
		err = Ordered(ctx, 0, 1000, m, func(i int64) int64 { return i }, func(i, _ int64) error {
			if i == 3 {
				cancel()
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
	}
	for range 300 { // whoever sees the end of the context first, it is an error
		ctx, cancel := context.WithCancel(context.Background())
		used := 0
		err := Ordered(ctx, 0, 1000, &Meter{Workers: 2}, func(i int64) int64 { return i },
			func(int64, int64) error {
				if used++; used == 3 {
					go cancel()
				}
				return nil
			})
		if used < 1000 {
			require.ErrorIs(t, err, context.Canceled)
		}
		cancel()
	}
	require.NoError(t, Ordered(context.Background(), 5, 5, &Meter{}, func(int64) int { return 0 },
		func(int64, int) error { return errors.New("never") }))
	require.Equal(t, "b", Bottleneck([]Stage{{Name: "a", Workers: 4, Busy: 8},
		{Name: "b", Workers: 1, Busy: 3}}, 10).Name)
}
