package control

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCounted: a wait that took far longer than was asked for says little of the peer.
func TestCounted(t *testing.T) {
	require.Equal(t, Beats, counted(Beats))
	require.Equal(t, Beats, counted(Beats+Beats/2-1))
	require.Equal(t, Beats/2, counted(Beats+Beats/2))
	require.Equal(t, Beats/2, counted(time.Minute))
}

// TestHear: silence is counted until a message comes, and what has begun to come is none.
func TestHear(t *testing.T) {
	x, c := pipe(t)
	a, over := NewConn(x, nil), errors.New("over")
	var asked []Quiet
	m, err := c.Hear(func(q Quiet) error {
		if asked = append(asked, q); len(asked) == 2 {
			go func() { _ = a.Send(Message{Kind: Output, Data: make([]byte, 1<<20)}) }()
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, Output, m.Kind)
	require.GreaterOrEqual(t, len(asked), 2)
	for i, q := range asked {
		require.GreaterOrEqual(t, q.For, time.Duration(i+1)*Beats)
		require.Equal(t, q.For, q.Dead, "who does not say what it acknowledges is taken at its word")
	}
	_, err = c.Hear(func(Quiet) error { return over })
	require.Equal(t, over, err)
	for _, limit := range []time.Duration{2 * Beats, Beats + 1} {
		began := time.Now()
		_, err = c.Listen(limit)
		took := time.Since(began)
		var silent Silent
		require.ErrorAs(t, err, &silent)
		require.Equal(t, fmt.Sprint("silent for ", time.Duration(silent)), err.Error())
		require.GreaterOrEqual(t, time.Duration(silent), limit)
		more := took - time.Duration(silent) // at least Beats for each round that was late, which counts half
		require.GreaterOrEqual(t, more, time.Duration(0))
		require.Less(t, time.Duration(silent), limit+Beats+more/Beats*(Beats/2), "one that was is not judged")
	}
	x.Close()
	_, err = c.Listen(time.Hour)
	require.Error(t, err)
}

// TestHearAcknowledged: a process that reads nothing is silent, and its system is there.
func TestHearAcknowledged(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	x, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer x.Close()
	y, err := l.Accept()
	require.NoError(t, err)
	defer y.Close()
	c, alive := NewConn(y, nil), errors.New("it acknowledges")
	_, ok := c.acked()
	if !ok {
		t.Skip("this system does not say what was acknowledged")
	}
	rounds := 0
	_, err = c.Hear(func(q Quiet) error {
		if rounds++; rounds > 2 && q.Dead == 0 {
			require.GreaterOrEqual(t, q.For, 3*Beats)
			return alive
		}
		return c.Send(Message{Kind: Beat})
	})
	require.Equal(t, alive, err)
	_, err = c.Hear(func(q Quiet) error {
		if q.For >= 4*Beats {
			require.GreaterOrEqual(t, q.Dead, 2*Beats, "nothing was sent that it could acknowledge")
			return alive
		}
		return nil
	})
	require.Equal(t, alive, err)
}
