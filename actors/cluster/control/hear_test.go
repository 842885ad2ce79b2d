package control

import (
	"errors"
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
	_, err = c.Listen(2 * Beats)
	require.Regexp(t, `^silent for 2[05]0ms$`, err.Error()) // with rounds that were late
	_, err = c.Listen(Beats + 1)
	require.Regexp(t, `^silent for 2[05]0ms$`, err.Error()) // with rounds that were late
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
