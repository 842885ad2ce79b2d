package fleet

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/run"
)

// TestLostRequests: requests that a head has taken along when it died are repeated, until what they ask for
// has come; what is said of the process before is not taken for an answer.
func TestLostRequests(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	agent := control.NewConn(there, nil)
	f := &Fleet{talk: control.NewConn(here, nil), procs: map[int]*proc{}}
	f.self.Gen = 3
	f.changed = sync.NewCond(&f.mu)
	started := make(chan run.Process)
	go func() {
		p, err := f.Start(1, []string{"X=1"})
		require.NoError(t, err)
		started <- p
	}()
	hears := func() control.Message {
		m, err := agent.Receive(0)
		require.NoError(t, err)
		return m
	}
	asked := hears() // and lost
	require.Equal(t, control.Message{Kind: control.Start, Peer: 1, Env: []string{"X=1"}, At: 3<<32 + 1}, asked)
	require.Equal(t, asked, hears())
	f.take(control.Message{Kind: control.Exited, Peer: 1, Gen: 6, At: asked.At - 1, Text: "was killed"})
	f.take(control.Message{Kind: control.Placed, Peer: 1, Gen: 7, At: asked.At, Text: "pid 9 on b"})
	p := <-started
	require.Equal(t, "pid 9 on b", p.Name())
	killed := make(chan control.Message, 1)
	go func() { killed <- hears() }()
	p.Kill()
	require.Equal(t, <-killed, hears())
	f.take(control.Message{Kind: control.Exited, Peer: 1, Gen: 7, Text: "was killed", Code: -1})
	require.EqualError(t, p.Wait(), "was killed")
}

// TestNoRoom: a process that no host has room for is not waited for: the request for it is answered, and at
// the end of the run nobody waits to reach the one before it, whose host takes what is sent and answers
// nothing.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer here.Close()
	agent := control.NewConn(there, nil)
	ca, err := trust.NewCA("test", time.Now())
	require.NoError(t, err)
	key, err := trust.NewKey()
	require.NoError(t, err)
	cert, err := ca.Issue(trust.Subject{Name: "a", Role: trust.Agent}, &key.PublicKey, time.Now(), time.Hour)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, trust.SaveIdentity(dir, ca.Cert, cert, key))
	id, err := trust.Load(dir, nil)
	require.NoError(t, err)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	f := &Fleet{talk: control.NewConn(here, nil), procs: map[int]*proc{}, id: id,
		peers: map[int]control.Peer{1: {Node: "b", Addr: silent.Addr().String(), Gen: 1}}}
	f.changed = sync.NewCond(&f.mu)
	ln, err := edge.Listen("127.0.0.1:0", id, edge.Options{})
	require.NoError(t, err)
	x := &transport{f: f, Listener: ln}
	failed := make(chan error, 2)
	go func() { _, err := x.Dial(1); failed <- err }()
	c, err := silent.Accept() // it is being dialled
	require.NoError(t, err)
	defer c.Close()
	go func() { _, err := f.Start(1, nil); failed <- err }()
	asked, err := agent.Receive(0)
	require.NoError(t, err)
	f.take(control.Message{Kind: control.NoRoom, Peer: 1, Gen: 1, At: asked.At, Text: "no room"})
	var none *run.NoRoomError
	require.ErrorAs(t, <-failed, &none)
	require.EqualError(t, none, "process 1: no room")
	f.take(control.Message{Kind: control.Peers})
	require.NoError(t, x.Close())
	require.ErrorContains(t, <-failed, "process 1 takes no edge")
}
