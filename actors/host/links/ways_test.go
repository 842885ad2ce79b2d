package links

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/machine"
)

// TestWay: a way that carries a third of what it did, and is what is waited for, is named after four looks,
// once until it was ordinary for as long. One whose receiver has no room is not, nor is one that has little to carry.
func TestWay(t *testing.T) {
	w, now := &way{}, carried{}
	look := func(bytes int64, busy, full time.Duration) bool {
		now = carried{now.busy + busy, now.full + full, now.acked + bytes}
		_, _, _, slow := w.see(now, waysEvery)
		return slow
	}
	const most = waysEvery * 9 / 10
	for range wayLearns {
		require.False(t, look(90e6, most, 0))
	}
	for range 20 {
		require.False(t, look(31e6, most, 0), "a third and a bit")
	}
	for range 64 {
		require.False(t, look(90e6, most, 0))
	}
	for range 20 {
		require.False(t, look(10e6, most, most*2/3), "the receiver reads slowly")
		require.False(t, look(1e3, waysEvery/100, 0), "there is little to carry")
	}
	for range 64 {
		require.False(t, look(90e6, most, 0))
	}
	for range waySteps - 1 {
		require.False(t, look(10e6, most, 0))
	}
	require.True(t, look(10e6, most, 0))
	for range 20 {
		require.False(t, look(10e6, most, 0), "once")
	}
	for range waySteps {
		require.False(t, look(90e6, most, 0))
	}
	for range waySteps - 1 {
		require.False(t, look(10e6, most, 0))
	}
	require.True(t, look(10e6, most, 0), "again")
	fast := &way{}
	for n := range int64(wayLearns + 1) { // too fast for the time to be measured
		fast.see(carried{0, 0, n * 1e6}, waysEvery)
	}
	var rate, usual, share float64
	var slow bool
	for range waySteps {
		require.False(t, slow)
		x := fast.last
		rate, usual, share, slow = fast.see(carried{x.busy + most, 0, x.acked + 2e5}, waysEvery)
	}
	require.True(t, slow)
	require.InDelta(t, 2e5/most.Seconds(), rate, 1)
	require.InDelta(t, 1e6/(wayAtLeast*waysEvery.Seconds()), usual, 1, "as much at least")
	require.InDelta(t, .9, share, 1e-9)
	require.False(t, look(-1e9, most, 0), "connections were made anew")
}

// TestCarried: the system tells what a connection of TCP has carried.
func TestCarried(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer a.Close()
	b, err := ln.Accept()
	require.NoError(t, err)
	defer b.Close()
	if _, ok := machine.Carried(a); !ok {
		t.Skip("this system does not tell")
	}
	go func() { _, _ = a.Write(make([]byte, 1<<20)) }()
	for n, buf := 0, make([]byte, 1<<16); n < 1<<20; {
		k, err := b.Read(buf)
		require.NoError(t, err)
		n += k
	}
	require.Eventually(t, func() bool {
		x, _ := machine.Carried(a)
		return x.Acked >= 1<<20 && x.Full <= x.Busy && x.Sent > 0 && x.Retry > 0
	}, 2*time.Minute, time.Millisecond)
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	_, ok := machine.Carried(x)
	require.False(t, ok)
}
