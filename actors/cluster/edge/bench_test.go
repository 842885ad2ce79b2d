package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// piece is a tensor's bytes, behind a small header.
const piece = 16 << 20

// BenchmarkEdge is an edge beside the two loops that it is measured against: a bare tls.Conn, and one
// over buffers of 256 KiB. Each op is a header of 64 bytes and 16 MiB.
func BenchmarkEdge(b *testing.B) {
	server, client := pair(b)
	b.Run("edge", func(b *testing.B) {
		l := listen(b, server, Options{})
		c, err := Dial(context.Background(), l.Addr().String(), "h1", client, Greeting{})
		require.NoError(b, err)
		in, err := l.Accept()
		require.NoError(b, err)
		throughput(b, c, in, c.Flush)
	})
	b.Run("tls", func(b *testing.B) {
		out, in := tlsPair(b, server, client, func(c net.Conn) net.Conn { return c })
		throughput(b, out, in, func() error { return nil })
	})
	b.Run("buffered", func(b *testing.B) {
		var w *bufio.Writer
		out, in := tlsPair(b, server, client, func(c net.Conn) net.Conn {
			x := buffered{c, bufio.NewReaderSize(c, 512<<10), bufio.NewWriterSize(c, 256<<10)}
			w = x.w
			return x
		})
		throughput(b, out, in, func() error { return w.Flush() })
	})
}

// buffered is a connection with buffers, as one would write it.
type buffered struct {
	net.Conn
	r *bufio.Reader
	w *bufio.Writer
}

// Read implements net.Conn. What was written goes first, as a handshake needs it.
func (b buffered) Read(p []byte) (int, error) {
	if err := b.w.Flush(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

// Write implements net.Conn.
func (b buffered) Write(p []byte) (int, error) { return b.w.Write(p) }

// tlsPair is a connection of TLS between two hosts, whose dialler's end is wrapped.
func tlsPair(b *testing.B, server, client *trust.Identity, wrap func(net.Conn) net.Conn) (out, in net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer ln.Close()
	got := make(chan net.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			close(got)
			return
		}
		s := tls.Server(c, server.Server(trust.Agent))
		_ = s.Handshake() // the client hears of it
		got <- s
	}()
	raw, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(b, err)
	c := tls.Client(wrap(raw), client.Client("h1", trust.Agent))
	require.NoError(b, c.Handshake())
	_, err = c.Write([]byte{1})
	require.NoError(b, err)
	if x, ok := c.NetConn().(buffered); ok {
		require.NoError(b, x.w.Flush())
	}
	in = <-got
	_, err = io.ReadFull(in, make([]byte, 1))
	require.NoError(b, err)
	return c, in
}

// throughput sends pieces and waits until all have come.
func throughput(b *testing.B, out, in net.Conn, flush func() error) {
	defer out.Close()
	defer in.Close()
	head, body := make([]byte, 64), make([]byte, piece)
	done := make(chan error, 1)
	b.SetBytes(piece)
	b.ResetTimer()
	go func() {
		into := make([]byte, piece+64)
		for range b.N {
			if _, err := io.ReadFull(in, into); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range b.N {
		_, err := out.Write(head)
		require.NoError(b, err)
		_, err = out.Write(body)
		require.NoError(b, err)
		require.NoError(b, flush())
	}
	require.NoError(b, <-done)
}

// BenchmarkRoundTrip is 1 KiB there and back over two edges; half of it is one way.
func BenchmarkRoundTrip(b *testing.B) {
	server, client := pair(b)
	l := listen(b, server, Options{})
	c, err := Dial(context.Background(), l.Addr().String(), "h1", client, Greeting{})
	require.NoError(b, err)
	defer c.Close()
	in, err := l.Accept()
	require.NoError(b, err)
	defer in.Close()
	go func() {
		p := make([]byte, 1<<10)
		for {
			if _, err := io.ReadFull(in, p); err != nil {
				return
			}
			_, _ = in.Write(p)
			_ = in.(*Conn).Flush()
		}
	}()
	p := make([]byte, 1<<10)
	b.ResetTimer()
	for range b.N {
		_, _ = c.Write(p)
		require.NoError(b, c.Flush())
		require.NoError(b, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err := io.ReadFull(c, p)
		require.NoError(b, err)
	}
}
