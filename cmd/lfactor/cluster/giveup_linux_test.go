package cluster_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/machine"
)

// TestGiveUpAfter: a connection over a network that is cut fails soon, whether something was sent or not; by
// itself it would not for a quarter of an hour.
func TestGiveUpAfter(t *testing.T) {
	r := newRig(t, 2, t.TempDir())
	a, b := r.Hosts[0], r.Hosts[1]
	var ln net.Listener
	var err error
	b.Within(func() { ln, err = net.Listen("tcp", b.Addr+":0") })
	require.NoError(t, err)
	defer ln.Close()
	for _, talks := range []bool{true, false} {
		var c net.Conn
		a.Within(func() { c, err = net.Dial("tcp", ln.Addr().String()) })
		require.NoError(t, err)
		d, err := ln.Accept()
		require.NoError(t, err)
		wait := machine.GiveUpAfter
		if !talks { // one that sends nothing has to ask
			wait = machine.KeepAsking
		}
		require.NoError(t, wait(c, time.Second))
		a.Cut(b)
		b.Cut(a)
		began := time.Now()
		require.NoError(t, c.SetReadDeadline(began.Add(time.Minute)))
		if talks {
			_, err = c.Write([]byte("anybody there?"))
			require.NoError(t, err)
		}
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
		ne, ok := err.(net.Error)
		require.True(t, ok)
		t.Logf("talks %v: %v after %v", talks, err, time.Since(began))
		require.Less(t, time.Since(began), 30*time.Second, "%v", ne)
		a.Heal(b)
		b.Heal(a)
		c.Close()
		d.Close()
	}
}
