package links

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/machine"
)

// TestLosses: what gets lost on some connections makes all wait longer, soon after it begins, and they wait for what they
// did before when nothing gets lost any more. A connection that ended counts no longer.
func TestLosses(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	x, now := losses{}, map[net.Conn]machine.Traffic{}
	send := func(c net.Conn, sent, again int64) {
		was := now[c]
		now[c] = machine.Traffic{Sent: was.Sent + sent, Again: was.Again + again, Retry: 200 * time.Millisecond}
	}
	send(a, 100_000, 0)
	send(b, 10, 0)
	x.see(now)
	require.Zero(t, x.share())
	require.Equal(t, machine.CutAfter, x.last[a].wait)
	send(a, 50, 10)
	x.see(now)
	require.InDelta(t, 0.04, x.share(), 1e-9)
	require.Greater(t, x.last[a].wait, 5*time.Second)
	require.Greater(t, x.last[b].wait, 5*time.Second, "it has sent too little to know by itself")
	delete(now, b)
	for range 20 {
		send(a, 200, 0)
		x.see(now)
	}
	require.Equal(t, machine.CutAfter, x.last[a].wait)
	require.Len(t, x.last, 1)
}

// TestGapsStay: a process that opens its connection for beats again is allowed the gaps that it had.
func TestGapsStay(t *testing.T) {
	l := New(nil, 0, 0, [32]byte{}, nil)
	l.heard(1, 3, true)
	l.pulses[1].gap = 2 * time.Second
	l.heard(1, 3, true)
	require.GreaterOrEqual(t, l.pulses[1].gap, 2*time.Second)
	l.heard(1, 4, true)
	require.Zero(t, l.pulses[1].gap, "another life has none yet")
}
