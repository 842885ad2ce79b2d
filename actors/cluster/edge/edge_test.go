package edge

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// pair makes the identities of two hosts of one cluster.
func pair(t testing.TB) (a, b *trust.Identity) {
	t.Helper()
	ca, err := trust.NewCA("test", time.Now())
	require.NoError(t, err)
	return node(t, ca, "h1"), node(t, ca, "h2")
}

func node(t testing.TB, ca *trust.CA, name string) *trust.Identity {
	t.Helper()
	dir := t.TempDir()
	key, err := trust.NewKey()
	require.NoError(t, err)
	cert, err := ca.Issue(trust.Subject{Name: name, Role: trust.Agent}, &key.PublicKey, time.Now(),
		time.Hour)
	require.NoError(t, err)
	require.NoError(t, trust.SaveIdentity(dir, ca.Cert, cert, key))
	id, err := trust.Load(dir, nil)
	require.NoError(t, err)
	return id
}

func listen(t testing.TB, id *trust.Identity, o Options) *Listener {
	t.Helper()
	l, err := Listen("127.0.0.1:0", id, o)
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// TestEdge: what is written and flushed comes out as it went in, whatever the pieces, and the end comes
// behind it.
func TestEdge(t *testing.T) {
	a, b := pair(t)
	l := listen(t, a, Options{})
	g := Greeting{Run: [16]byte{7}, Proc: 1, To: 2, Gen: 3}
	c, err := Dial(context.Background(), l.Addr().String(), "h1", b, g)
	require.NoError(t, err)
	in, err := l.Accept()
	require.NoError(t, err)
	require.Equal(t, g, in.(*Conn).From)
	require.Equal(t, "h2", in.(*Conn).Peer.Name)
	var want bytes.Buffer
	go func() {
		for i, n := range []int{1, 8, 300, 16 << 10, 1<<20 + 13, 2, 600 << 10, 0, 5} {
			p := bytes.Repeat([]byte{byte(i + 1)}, n)
			want.Write(p)
			_, _ = c.Write(p)
			if i%2 == 0 {
				_ = c.Flush()
			}
		}
		_ = c.Close()
	}()
	got, err := io.ReadAll(in)
	require.NoError(t, err)
	require.True(t, bytes.Equal(want.Bytes(), got), "%d bytes, want %d", len(got), want.Len())
}

// TestAdmit: who is refused hears why, and is counted.
func TestAdmit(t *testing.T) {
	a, b := pair(t)
	l := listen(t, a, Options{Admit: func(g Greeting, who trust.Subject) error {
		if g.Gen < 2 {
			return errors.New("process 1 was replaced")
		}
		return nil
	}})
	_, err := Dial(context.Background(), l.Addr().String(), "h1", b, Greeting{Proc: 1, Gen: 1})
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "process 1 was replaced", refused.Why)
	require.Eventually(t, func() bool { return l.Refused() == 1 }, 2*time.Minute, time.Millisecond)
	c, err := Dial(context.Background(), l.Addr().String(), "h1", b, Greeting{Proc: 1, Gen: 2})
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// TestStrangers: other protocols and other clusters get no edge, are counted, and are reported once a
// second at most.
func TestStrangers(t *testing.T) {
	a, b := pair(t)
	_, stranger := pair(t)
	var lines atomic.Int64
	l := listen(t, a, Options{Log: func(string) { lines.Add(1) }})
	for range 20 {
		raw, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = raw.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		require.NoError(t, err)
		_, _ = io.ReadAll(raw) // an alert, or the end
		raw.Close()
	}
	_, err := Dial(context.Background(), l.Addr().String(), "h1", stranger, Greeting{})
	require.Error(t, err)
	require.Eventually(t, func() bool { return l.Refused() >= 21 }, 2*time.Minute, time.Millisecond)
	require.LessOrEqual(t, lines.Load(), int64(2))
	c, err := Dial(context.Background(), l.Addr().String(), "h1", b, Greeting{})
	require.NoError(t, err, "members still get theirs")
	c.Close()
}

// TestHalfOpen: a thousand connections that never finish their handshake hold up nobody for longer than
// a handshake may take, and keep no memory.
func TestHalfOpen(t *testing.T) {
	a, b := pair(t)
	l := listen(t, a, Options{Handshake: 300 * time.Millisecond})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var idle []net.Conn
	for range 1000 {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		idle = append(idle, c)
	}
	defer func() {
		for _, c := range idle {
			c.Close()
		}
	}()
	require.Eventually(t, func() bool { return l.Refused() == 1000 }, 2*time.Minute, 5*time.Millisecond)
	c, err := Dial(context.Background(), l.Addr().String(), "h1", b, Greeting{})
	require.NoError(t, err)
	c.Close()
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(4<<20))
}

// FuzzGreeting: whatever the bytes, a greeting comes out as it went in, or an error.
func FuzzGreeting(f *testing.F) {
	f.Add(Greeting{Proc: 1, To: -1, Gen: 1 << 63}.bytes())
	f.Add(binary.LittleEndian.AppendUint32(nil, magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := parseGreeting(b)
		if err == nil {
			require.Equal(t, b, g.bytes())
		}
	})
}
