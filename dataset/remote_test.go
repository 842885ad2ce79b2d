package dataset

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// square is an item of these tests.
type square struct {
	V     int64
	Fault Fault
	err   error
}

// TestItems: items come as they are made here, whoever makes them and in whatever order they are asked for;
// batches have the size that is wanted, are asked for ahead, and each only once.
func TestItems(t *testing.T) {
	bad := &BadSample{Place{"f", 3}, "why"}
	here := func(i int64) (s square) {
		if s.V = i * i; i == 7 {
			s.err = bad
		}
		return s
	}
	var mu sync.Mutex
	var asked [][3]int64
	var along []string
	e := Remote{Part: 2, Ahead: 2,
		With: func(from, to int64) ([]byte, error) { return fmt.Appendf(nil, "%d-%d", from, to), nil },
		Do: func(ctx context.Context, part int, from, to int64, with []byte) ([]byte, error) {
			mu.Lock()
			asked = append(asked, [3]int64{int64(part), from, to})
			along = append(along, string(with))
			mu.Unlock()
			return EncodeItems(ctx, from, to, func(i int64) square {
				s := here(i)
				s.Fault = FaultOf(s.err)
				return s
			})
		}}
	failed := func(err error) square { return square{err: err} }
	at := Items(t.Context(), e, 3, 14, 4, here, failed)
	for _, i := range []int64{4, 3, 6, 5, 7, 13, 12, 11, 10, 9, 8} {
		s := at(i)
		require.Equal(t, i*i, s.V)
		require.NoError(t, s.err)
		require.Equal(t, here(i).err, s.Fault.Err())
	}
	require.ElementsMatch(t, [][3]int64{{2, 3, 7}, {2, 7, 11}, {2, 11, 14}}, asked)
	require.ElementsMatch(t, []string{"3-7", "7-11", "11-14"}, along)
	require.Equal(t, square{V: 25}, Items(t.Context(), Remote{}, 0, 9, 4, here, failed)(5), "nobody else")

	asked = nil
	e.Ahead = 1
	Items(t.Context(), e, 0, 100, 10, here, failed)(0)
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(asked) == 2 },
		2*time.Minute, time.Millisecond)
}

// TestItemsFail: what cannot be made is said at the item, as is a batch of the wrong size and the end of the job.
func TestItemsFail(t *testing.T) {
	here := func(i int64) square { return square{V: i} }
	failed := func(err error) square { return square{err: err} }
	try := func(ctx context.Context, do Work) error {
		return Items(ctx, Remote{Do: do}, 0, 4, 2, here, failed)(1).err
	}
	gone := errors.New("gone")
	never := func(context.Context, int, int64, int64, []byte) ([]byte, error) { panic("asked") }
	nothing := func(int64, int64) ([]byte, error) { return nil, gone }
	require.Equal(t, gone, Items(t.Context(), Remote{Do: never, With: nothing}, 0, 4, 2, here,
		failed)(1).err,
		"what is to go along cannot be read")
	require.Equal(t, gone, try(t.Context(), func(context.Context, int, int64, int64, []byte) ([]byte,
		error) {
		return nil, gone
	}))
	require.ErrorContains(t,
		try(t.Context(), func(ctx context.Context, _ int, from, to int64, _ []byte) ([]byte, error) {
			return EncodeItems(ctx, from, to-1, here)
		}), "1 items came of 2")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, try(ctx, func(ctx context.Context, _ int, from, to int64, _ []byte) ([]byte, error) {
		return EncodeItems(ctx, from, to, here)
	}), context.Canceled)
	require.Equal(t, "text", Fault{Text: "text"}.Err().Error())
	require.Equal(t, Fault{}, FaultOf(nil))
	require.NoError(t, Fault{}.Err())
}
