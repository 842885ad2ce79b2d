package edge

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	mrand "math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// relay stands between the ends of an edge: it hands on what comes by TCP, and loses, doubles and exchanges packets of
// UDP as it is told.
type relay struct {
	addr   string
	silent atomic.Bool // every packet is lost
	lost   atomic.Int64
	passed atomic.Int64
}

func newRelay(t *testing.T, to string, percent int) *relay {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{addr: ln.Addr().String()}
	at := ln.Addr().(*net.TCPAddr)
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.IP, Port: at.Port})
	require.NoError(t, err)
	there, err := net.ResolveUDPAddr("udp", to)
	require.NoError(t, err)
	back, err := net.DialUDP("udp", nil, there)
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close(); front.Close(); back.Close() })
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				return
			}
			for _, p := range [][2]net.Conn{{a, b}, {b, a}} {
				go func() { _, _ = io.Copy(p[0], p[1]); p[0].Close() }()
			}
		}
	}()
	var caller atomic.Pointer[net.UDPAddr]
	pass := func(from *net.UDPConn, send func([]byte)) {
		rng := mrand.New(mrand.NewPCG(1, uint64(percent)))
		b, late := make([]byte, 2048), []byte(nil)
		for {
			n, who, err := from.ReadFromUDP(b)
			if err != nil {
				return
			}
			if from == front {
				caller.Store(who)
			}
			if r.silent.Load() || rng.IntN(100) < percent {
				r.lost.Add(1)
				continue
			}
			r.passed.Add(1)
			if rng.IntN(10) == 0 && late == nil {
				late = bytes.Clone(b[:n])
				continue
			}
			send(b[:n])
			if late != nil {
				send(late)
				late = nil
			}
			if rng.IntN(10) == 0 {
				send(b[:n])
			}
		}
	}
	go pass(front, func(b []byte) { _, _ = back.Write(b) })
	go pass(back, func(b []byte) { _, _ = front.WriteToUDP(b, caller.Load()) })
	return r
}

// overRelay is an edge through a relay; what it says is kept.
func overRelay(t *testing.T, percent int) (c, in *Conn, r *relay, said func() string) {
	a, b := pair(t)
	l := listen(t, a, Options{})
	r = newRelay(t, l.Addr().String(), percent)
	c, err := Dial(context.Background(), r.addr, "h1", b, Greeting{})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	x, err := l.Accept()
	require.NoError(t, err)
	in = x.(*Conn)
	t.Cleanup(func() { in.Close() })
	var mu sync.Mutex
	var all []string
	c.Say(func(text string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, text)
	})
	return c, in, r, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}
}

// onPath reports whether what a connection writes goes by UDP.
func onPath(c *Conn) bool {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	return c.wire.by != nil
}

// chat sends drawn pieces both ways, and checks that they come as they went.
func chat(t *testing.T, a, b *Conn, pieces int, between func(i int)) {
	t.Helper()
	buf := make([]byte, 1<<20)
	for i := range pieces {
		if between != nil {
			between(i)
		}
		n := 1 + mrand.IntN(1<<(4+i%16))
		_, _ = rand.Read(buf[:n])
		for _, ends := range [][2]*Conn{{a, b}, {b, a}} {
			done := make(chan error, 1)
			go func() {
				_, err := ends[0].Write(buf[:n])
				if err == nil {
					err = ends[0].Flush()
				}
				done <- err
			}()
			got := make([]byte, n)
			_, err := io.ReadFull(ends[1], got)
			require.NoError(t, err, "piece %d", i)
			require.NoError(t, <-done)
			require.True(t, bytes.Equal(buf[:n], got), "piece %d of %d bytes", i, n)
		}
	}
}

// TestLossy: an edge goes by UDP and comes back as often as one likes, under a relay that loses a fifth of all packets,
// doubles and exchanges others; what is written comes as it went, both ways, and what is written last comes too.
func TestLossy(t *testing.T) {
	c, in, r, said := overRelay(t, 20)
	chat(t, c, in, 4, nil)
	require.False(t, onPath(c))
	for turn := range 3 {
		c.wire.open(20)
		chat(t, c, in, 48, nil)
		require.True(t, onPath(c), said())
		require.True(t, onPath(in))
		require.NoError(t, c.wire.home(c.wire.path.Load(), 0))
		chat(t, c, in, 16, nil)
		require.False(t, onPath(c), "turn %d", turn)
	}
	require.Positive(t, r.lost.Load())
	require.Equal(t, 3, strings.Count(said(), "it goes by UDP"), said())
	c.wire.open(20)
	last := bytes.Repeat([]byte("last"), 1<<18)
	go func() {
		_, _ = c.Write(last)
		_ = c.Close()
	}()
	got, err := io.ReadAll(in)
	require.NoError(t, err)
	require.True(t, bytes.Equal(last, got), "%d of %d bytes", len(got), len(last))
}

// TestLossySilent: where nothing comes by UDP an edge stays on TCP and says so; where nothing comes any more it goes
// back, and nothing is lost or comes twice.
func TestLossySilent(t *testing.T) {
	c, in, r, said := overRelay(t, 20)
	r.silent.Store(true)
	c.wire.open(20)
	chat(t, c, in, 16, nil)
	require.False(t, onPath(c))
	require.Contains(t, said(), "it stays on TCP, since that port does not answer by UDP within 1s")
	r.silent.Store(false)
	c.wire.open(20)
	chat(t, c, in, 32, func(i int) { r.silent.Store(i >= 16) })
	require.False(t, onPath(c))
}

// TestLossyStranger: packets of strangers, and those of the edge that were recorded or changed, open nothing.
func TestLossyStranger(t *testing.T) {
	a, b := pair(t)
	l := listen(t, a, Options{})
	c, err := Dial(context.Background(), l.Addr().String(), "h1", b, Greeting{})
	require.NoError(t, err)
	defer c.Close()
	x, err := l.Accept()
	require.NoError(t, err)
	in := x.(*Conn)
	defer in.Close()
	u, err := net.Dial("udp", l.Addr().String())
	require.NoError(t, err)
	defer u.Close()
	send := func(change func(b []byte) []byte) {
		p := &path{c: c.wire.carrier, conv: 1}
		var out []byte
		p.send = func(b []byte) { out = bytes.Clone(b) }
		p.tell()
		_, err := u.Write(change(out))
		require.NoError(t, err)
	}
	heard := func() (yes bool) { // and takes all of it
		for {
			_ = u.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			if _, err := u.Read(make([]byte, 2048)); err != nil {
				return yes
			}
			yes = true
		}
	}
	for i := range packetHead + packetTag {
		send(func(b []byte) []byte { b[i] ^= 1; return b })
	}
	for n := range packetHead + packetTag {
		send(func(b []byte) []byte { return b[:n] })
	}
	require.False(t, heard())
	require.Nil(t, in.wire.path.Load())
	var once []byte
	send(func(b []byte) []byte { once = b; return b })
	require.True(t, heard())
	_, err = u.Write(once)
	require.NoError(t, err)
	require.False(t, heard(), "a packet that was recorded is answered")
}
