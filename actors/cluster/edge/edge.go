package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/topology/machine"
)

const (
	above     = 16 << 10  // one TLS record: headers and small tensors share it
	below     = 256 << 10 // bytes of records that one system call writes
	readBelow = 512 << 10
	// handshake is how long a peer may take until its edge is open, and waiting how many may take that
	// long at once (Crowd).
	handshake = 10 * time.Second
	waiting   = 256
)

// Conn is an edge's connection. What is written leaves with Flush, or when a buffer is full.
type Conn struct {
	*tls.Conn
	out  *bufio.Writer // above TLS
	wire *batched
	Peer trust.Subject
	From Greeting // of a connection that was accepted
}

// batched is the carrier below TLS, which writes and reads in large pieces. Its buffers grow with what is sent at once,
// so that an edge of small messages stays small and a half-open connection has none.
type batched struct {
	*carrier
	out    []byte // to be written
	in     []byte // storage of what was read
	rest   []byte // of it, not taken yet
	direct bool   // during the handshake, whose every flight must leave
}

const firstRead = 16 << 10

// Read implements net.Conn.
func (b *batched) Read(p []byte) (int, error) {
	if b.direct {
		return b.carrier.Read(p)
	}
	if len(b.rest) == 0 {
		if b.in == nil {
			b.in = make([]byte, firstRead)
		}
		n, err := b.carrier.Read(b.in)
		b.rest = b.in[:n]
		if n == len(b.in) && n < readBelow {
			b.in = make([]byte, 2*n) // there is more to come; rest keeps the storage it is in
		}
		if n == 0 {
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// Write implements net.Conn.
func (b *batched) Write(p []byte) (int, error) {
	if b.direct {
		return b.carrier.Write(p)
	}
	b.out = append(b.out, p...)
	if len(b.out) < below {
		return len(p), nil
	}
	return len(p), b.flush()
}

// flush writes what was gathered in one call, which TLS turns into few records.
func (b *batched) flush() error {
	_, err := b.carrier.Write(b.out)
	b.out = b.out[:0]
	return err
}

// Write implements net.Conn; the bytes leave with Flush.
func (c *Conn) Write(p []byte) (int, error) { return c.out.Write(p) }

// Flush sends what was written.
func (c *Conn) Flush() error {
	if err := c.out.Flush(); err != nil {
		return err
	}
	return c.wire.flush()
}

// Close sends what was written and ends the connection; a peer that reads no more does not hold it up.
func (c *Conn) Close() error {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // a connection that takes none fails below
	err := c.Flush()
	err = errors.Join(err, c.wire.home(c.wire.path.Load(), closing))
	c.wire.direct = true // the alert that TLS ends with
	return errors.Join(err, c.Conn.Close())
}

// newConn wraps a connection whose handshake is over; the peer is whom its certificate names.
func newConn(t *tls.Conn, wire *batched) (*Conn, error) {
	who, err := trust.Owner(t.ConnectionState().PeerCertificates[0])
	if err != nil {
		return nil, err
	}
	wire.direct = false
	return &Conn{Conn: t, out: bufio.NewWriterSize(t, above), wire: wire, Peer: who}, nil
}

// Greeting opens an edge: which run the dialler belongs to and who it is in it.
type Greeting struct {
	Run  [16]byte // of the job: processes of others are refused
	Proc int32    // of the dialler
	To   int32    // whom it means to reach: an address may have another process by now
	// counts the processes that have had the dialler's number: an older one's edges are refused
	Gen uint64
}

const (
	magic        = 0x3245464c // "LFE2"
	greetingSize = 4 + 16 + 4 + 4 + 8
	welcome      = 0x06 // ACK
	refusal      = 0x15 // NAK, then a line of text
)

// bytes is the greeting as it is sent: fixed size, little-endian.
func (g Greeting) bytes() []byte {
	b := make([]byte, 0, greetingSize)
	b = binary.LittleEndian.AppendUint32(b, magic)
	b = append(b, g.Run[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(g.Proc))
	b = binary.LittleEndian.AppendUint32(b, uint32(g.To))
	return binary.LittleEndian.AppendUint64(b, g.Gen)
}

// parseGreeting reads a greeting. Anything that does not begin as ours comes from another version,
// which is the usual cause.
func parseGreeting(b []byte) (g Greeting, err error) {
	if len(b) != greetingSize || binary.LittleEndian.Uint32(b) != magic {
		return g, errors.New("another program, or another version of this one, speaks there: put one " +
			"binary on all hosts")
	}
	copy(g.Run[:], b[4:])
	g.Proc, g.To = int32(binary.LittleEndian.Uint32(b[20:])), int32(binary.LittleEndian.Uint32(b[24:]))
	g.Gen = binary.LittleEndian.Uint64(b[28:])
	return g, nil
}

// RefusedError is the word of a peer that does not take an edge.
type RefusedError struct{ Addr, Why string }

// Error implements error.
func (e *RefusedError) Error() string { return fmt.Sprintf("%s refuses the edge: %s", e.Addr, e.Why) }

// Dial opens an edge to the process that listens at addr on the node of this name.
func Dial(ctx context.Context, addr, node string, id *trust.Identity, g Greeting) (*Conn, error) {
	d := net.Dialer{Timeout: machine.CutAfter} // by itself TCP asks less and less often
	raw, err := machine.WithSpare(func() (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) })
	if err != nil {
		return nil, err
	}
	machine.TryOften(raw)
	wire := &batched{carrier: &carrier{Conn: raw, tcp: raw}, direct: true}
	t := tls.Client(wire, id.Client(node, trust.Agent))
	c, err := open(ctx, t, wire, g)
	if err == nil {
		err = wire.keys(t.ConnectionState(), true)
	}
	if err == nil {
		err = machine.GiveUpAfter(raw, machine.CutAfter)
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// open makes the handshake and greets.
func open(ctx context.Context, t *tls.Conn, wire *batched, g Greeting) (*Conn, error) {
	if err := wire.SetDeadline(time.Now().Add(handshake)); err != nil {
		return nil, err
	}
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS with %s: %w", wire.RemoteAddr(), err)
	}
	if _, err := t.Write(g.bytes()); err != nil {
		return nil, err
	}
	var word [1]byte
	if _, err := io.ReadFull(t, word[:]); err != nil {
		return nil, fmt.Errorf("%s ends the edge at once: %w", wire.RemoteAddr(), err)
	}
	if word[0] != welcome {
		why, _ := io.ReadAll(io.LimitReader(t, 512)) // what came of it is enough
		return nil, &RefusedError{wire.RemoteAddr().String(), string(why)}
	}
	c, err := newConn(t, wire)
	if err != nil {
		return nil, err
	}
	return c, wire.SetDeadline(time.Time{})
}

// Options are a listener's.
type Options struct {
	// Admit says why a greeting is refused, nil to take the edge.
	Admit func(Greeting, trust.Subject) error
	// Log hears of refusals, at most once a second; nil for nobody.
	Log func(text string)
	// Handshake is how long a peer may take to open an edge; 0 is ten seconds.
	Handshake time.Duration
}

// Listener accepts edges. It implements net.Listener; its connections are *Conn.
type Listener struct {
	ln      net.Listener
	udp     *socket // at the same port, nil where another has it
	id      *trust.Identity
	o       Options
	ready   chan *Conn
	done    chan struct{}
	once    sync.Once
	opening Crowd
	refused atomic.Int64
	logged  atomic.Int64 // when, in Unix nanoseconds
	wg      sync.WaitGroup
}

// Listen accepts edges at a TCP address; port 0 takes a free one.
func Listen(addr string, id *trust.Identity, o Options) (*Listener, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	if o.Handshake == 0 {
		o.Handshake = handshake
	}
	l := &Listener{ln: ln, id: id, o: o, ready: make(chan *Conn), done: make(chan struct{}),
		opening: Crowd{Most: waiting}}
	if at, ok := ln.Addr().(*net.TCPAddr); ok {
		l.udp, _ = listenUDP(at.IP, at.Port, at.Zone) // edges stay on TCP without it, and say so
	}
	l.wg.Add(1)
	go l.accept()
	return l, nil
}

// accept takes in connections; each is opened beside the others, so that a slow one holds up none.
func (l *Listener) accept() {
	defer l.wg.Done()
	for {
		raw, err := machine.WithSpare(l.ln.Accept)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no file descriptors, as a rule: some are free again soon
			l.refuse(fmt.Errorf("accepting: %w", err))
			select {
			case <-time.After(50 * time.Millisecond):
			case <-l.done:
				return
			}
			continue
		}
		if old := l.opening.Enter(raw); old != nil {
			old.Close() // the one that reads from it says so
		}
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			c, err := l.take(raw)
			if !l.opening.Leave(raw) {
				err = fmt.Errorf("%d connections are half-open, and none has more than its address", waiting)
			}
			if err != nil {
				l.refuse(fmt.Errorf("%s: %w", raw.RemoteAddr(), err))
				raw.Close()
			}
			if c != nil && err == nil {
				select {
				case l.ready <- c:
					return
				case <-l.done:
				}
			}
			if c != nil {
				c.wire.Close()
			}
		}()
	}
}

// take makes the handshake and judges the greeting.
func (l *Listener) take(raw net.Conn) (*Conn, error) {
	if err := raw.SetDeadline(time.Now().Add(l.o.Handshake)); err != nil {
		return nil, err
	}
	machine.TryOften(raw)
	wire := &batched{carrier: &carrier{Conn: raw, tcp: raw}, direct: true}
	t := tls.Server(wire, l.id.Server(trust.Agent))
	if err := t.Handshake(); err != nil {
		return nil, err
	}
	c, err := newConn(t, wire)
	if err == nil {
		err = wire.keys(t.ConnectionState(), false)
	}
	if err != nil {
		return nil, err
	}
	wire.direct = true
	b := make([]byte, greetingSize)
	if _, err := io.ReadFull(t, b); err != nil {
		return nil, err
	}
	if c.From, err = parseGreeting(b); err == nil && l.o.Admit != nil {
		err = l.o.Admit(c.From, c.Peer)
	}
	if err != nil {
		_, _ = t.Write(append([]byte{refusal}, err.Error()...)) // it may have gone
		t.Close()
		return nil, err
	}
	wire.sock = l.udp
	l.udp.know(wire.carrier)
	_, err = t.Write([]byte{welcome})
	wire.direct = false
	err = errors.Join(err, machine.KeepAsking(raw, machine.IdleAfter), raw.SetDeadline(time.Time{}))
	if err != nil {
		wire.Close()
	}
	return c, err
}

// refuse counts a refusal and reports it, but not more often than once a second.
func (l *Listener) refuse(why error) {
	n := l.refused.Add(1)
	now, last := time.Now().UnixNano(), l.logged.Load()
	if l.o.Log != nil && now-last >= int64(time.Second) && l.logged.CompareAndSwap(last, now) {
		l.o.Log(fmt.Sprintf("connection refused (%d so far): %v", n, why))
	}
}

// Refused counts the connections that were refused.
func (l *Listener) Refused() int64 { return l.refused.Load() }

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.ln.Addr() }

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.done)
		l.udp.forget(nil) // its edges stay
	})
	return l.ln.Close()
}

// TCP is the connection below TLS, of which the system knows what it has carried.
func (c *Conn) TCP() net.Conn { return c.wire.carrier.Conn }

// Say has f told where what the connection carries begins to go by UDP, or cannot, since much of it gets lost.
func (c *Conn) Say(f func(text string)) { c.wire.say.Store(&f) }
