package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host/links"
)

// trainProcs runs v over n systems that are joined by unix sockets only, as separate processes are. A
// transport that wrap puts around the sockets may break connections; nil breaks none.
func (v variant) trainProcs(t *testing.T, n int, capture string,
	wrap func(links.Transport) links.Transport) []float64 {
	m := tiny(true)
	dir, err := os.MkdirTemp("", "lf") // a socket's path may be at most 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	layout := v.layout(t, m)
	owner := func(r actors.Ref) int { return layout.OwnerOf(r, n) }
	var ends []*links.Links
	for p := range n {
		sockets, err := links.Unix(dir, p)
		require.NoError(t, err)
		if wrap != nil {
			sockets = wrap(sockets)
		}
		l := links.New(sockets, p, 0, [32]byte{1}, owner)
		l.Lost = func(proc int, _ uint32, cause error) { t.Errorf("process %d lost: %v", proc, cause) }
		ends = append(ends, l)
	}
	taps := tapping{t: t, dir: capture}
	var ready, ended sync.WaitGroup
	// as the end of a parent that has nothing more to say: connections may break over a last message too
	over := make(chan error)
	ready.Add(n - 1)
	for p := 1; p < n; p++ {
		ended.Add(1)
		go func() {
			defer ended.Done()
			l, o := v.run(t, m, 10, refBackend, nil)
			if o.Coord.Recover = wrap != nil; wrap != nil {
				o.Orphaned = over
			}
			o.Proc, o.Procs, o.Links, o.Ready = p, n, ends[p], func() error { ready.Done(); return nil }
			taps.join(l, &o)
			if err := Run(l, o); err != nil {
				t.Errorf("process %d: %v", p, err)
			}
		}()
	}
	var losses []float64
	l, o := v.run(t, m, 10, refBackend, &losses)
	o.Coord.Recover = wrap != nil
	o.Procs, o.Links, o.Ready = n, ends[0], func() error { ready.Wait(); return nil }
	taps.join(l, &o)
	require.NoError(t, Run(l, o))
	close(over)
	ended.Wait()
	taps.check()
	for _, l := range ends {
		require.Zero(t, l.Buffers(), "storage of received messages")
		require.Equal(t, n > 1, l.Took() > 0, "what a watch takes for messages on their way")
	}
	return losses
}

// TestProcs: the number of processes does not change a bit of any loss, nor of any tensor on any edge, and
// what is captured is Arrow.
func TestProcs(t *testing.T) {
	for _, v := range []variant{{pp: 2, dp: 1, tp: 1, schedule: "1f1b"}, {pp: 2, dp: 2, tp: 2, zero: 1,
		schedule: "1f1b", sp: true}, {pp: 1, dp: 2, tp: 2, zero: 3, schedule: "gpipe"}} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			t.Parallel()
			want, _ := v.train(t, tiny(true), 10, refBackend)
			two, one := t.TempDir(), t.TempDir()
			require.Equal(t, want, v.trainProcs(t, 2, two, nil))
			require.Equal(t, want, v.trainProcs(t, 1, one, nil))
			a, b := captures(t, two), captures(t, one)
			compared := 0
			for edge, got := range a {
				if from, to, _ := strings.Cut(edge, "-"); strings.HasPrefix(from, "rank") &&
					strings.HasPrefix(to, "rank") {
					require.Equal(t, b[edge].tensors, got.tensors, edge)
					compared += len(got.tensors)
				}
			}
			require.Positive(t, compared)
		})
	}
}

// cutting is a transport that ends a connection in the middle of every so manieth write.
type cutting struct {
	links.Transport
	every  int64
	writes *atomic.Int64
	cuts   *atomic.Int64
}

func (c cutting) Dial(proc int) (net.Conn, error) {
	conn, err := c.Transport.Dial(proc)
	return cutConn{conn, c}, err
}

type cutConn struct {
	net.Conn
	of cutting
}

// Write implements net.Conn.
func (c cutConn) Write(b []byte) (int, error) {
	if c.of.writes.Add(1)%c.of.every == 0 && len(b) > 1 {
		c.of.cuts.Add(1)
		_, _ = c.Conn.Write(b[:len(b)/2])
		c.Conn.Close()
		return 0, errors.New("the cable is cut")
	}
	return c.Conn.Write(b)
}

// TestLinksBreak: connections that break while all processes live cost the step under way, which is taken
// again over new ones; no bit of any loss changes. Ranks exchange nothing between the commit and their
// updates (ZeRO 0), so that they always hold what they go back to.
func TestLinksBreak(t *testing.T) {
	v := variant{pp: 2, dp: 2, tp: 2, schedule: "1f1b", sp: true}
	want, _ := v.train(t, tiny(true), 10, refBackend)
	var writes, cuts atomic.Int64
	got := v.trainProcs(t, 2, "", func(s links.Transport) links.Transport {
		return cutting{s, 4001, &writes, &cuts}
	})
	require.Equal(t, want, got)
	t.Logf("%d cuts in %d writes", cuts.Load(), writes.Load())
	require.Greater(t, cuts.Load(), int64(2))
}
