package serve

import (
	"context"
	"testing"
	"time"

	"github.com/lfactor/lfactor/actors/serve/queue"
	"github.com/stretchr/testify/require"
)

// TestLooks: as many requests look at images at once as there are places, as many more wait as may, and one
// whose time is over waits no longer; others are refused, and all give back what they had.
func TestLooks(t *testing.T) {
	l := newImageAdmission(2)
	l.places, l.most = make(chan struct{}, 1), 3
	leave, err := l.enter(context.Background())
	require.NoError(t, err)
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	_, err = l.enter(short)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	let := make(chan func())
	for range 2 {
		go func() {
			leave, err := l.enter(context.Background())
			if err != nil {
				panic(err)
			}
			let <- leave
		}()
	}
	require.Eventually(t, func() bool { return l.inside.Load() == 3 }, 2*time.Minute, time.Millisecond)
	_, err = l.enter(context.Background())
	require.ErrorIs(t, err, queue.ErrFull)
	leave()
	for range 2 {
		(<-let)()
	}
	require.Zero(t, l.inside.Load())
}
