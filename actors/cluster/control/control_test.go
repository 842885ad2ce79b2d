package control

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pipe is two ends of a connection.
func pipe(t testing.TB) (a net.Conn, b *Conn) {
	x, y := net.Pipe()
	t.Cleanup(func() { x.Close(); y.Close() })
	return x, NewConn(y, nil)
}

// TestMessages: what is sent is received, also where a message is larger than any buffer.
func TestMessages(t *testing.T) {
	x, b := pipe(t)
	a := NewConn(x, nil)
	for _, m := range []Message{{Kind: Beat}, {Kind: Output, Job: "1", Data: make([]byte, 1<<20)},
		{Kind: Peers, Peers: map[int]Peer{3: {Node: "h", Addr: "a:1", Gen: 2}}}} {
		sent := make(chan error, 1)
		go func() { sent <- a.Send(m) }()
		got, err := b.Receive(time.Minute)
		require.NoError(t, err)
		require.Equal(t, m, got)
		require.NoError(t, <-sent)
	}
	require.Error(t, a.Send(Message{Data: make([]byte, maxFrame)}), "more than the other end takes")
	y, silent := pipe(t)
	_, err := silent.Receive(time.Millisecond)
	require.Equal(t, ErrSilent.Error(), Why(err))
	y.Close()
	require.Equal(t, "the connection ended", Why(io.ErrUnexpectedEOF))
	require.Equal(t, "the connection ended", Why(&net.OpError{Op: "set", Err: net.ErrClosed}))
}

// TestFrames: lengths that nobody sends are refused, and memory grows with what has come, not with what
// was announced.
func TestFrames(t *testing.T) {
	for _, n := range []uint32{1<<32 - 1, maxFrame + 1} {
		x, b := pipe(t)
		go func() { _, _ = x.Write(binary.LittleEndian.AppendUint32(nil, n)) }()
		_, err := b.Receive(time.Minute)
		require.ErrorContains(t, err, "more than")
	}
	x, b := pipe(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		_, _ = x.Write(binary.LittleEndian.AppendUint32(nil, maxFrame))
		_, _ = x.Write([]byte("{"))
		x.Close()
	}()
	_, err := b.Receive(time.Minute)
	require.Error(t, err)
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
}

// FuzzReceive: whatever comes is a message or an error.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x0a\x00\x00\x00{\"k\":\"hi\"}"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, frames []byte) {
		x, b := pipe(t)
		go func() {
			_, _ = x.Write(frames)
			x.Close()
		}()
		for {
			if _, err := b.Receive(time.Minute); err != nil {
				return
			}
		}
	})
}

// TestChanged: hosts that come, change and go; what was known is left as it is.
func TestChanged(t *testing.T) {
	was := map[string]string{"a": "1", "b": "2"}
	m := Message{Kind: Change, Hosts: map[string]string{"b": "3", "c": "4"}, Gone: []string{"a", "x"}}
	require.Equal(t, map[string]string{"b": "3", "c": "4"}, m.Changed(was))
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, was)
	require.Equal(t, map[string]string{"b": "3", "c": "4"}, m.Changed(nil))
	m.Kind = Hosts
	require.Equal(t, m.Hosts, m.Changed(was))
}

// TestBeat: the beat that is sent without being made is what a message of its kind would be.
func TestBeat(t *testing.T) {
	text, err := json.Marshal(Message{Kind: Beat})
	require.NoError(t, err)
	require.Equal(t, string(beat), string(text))
}
