package fleet

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
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
