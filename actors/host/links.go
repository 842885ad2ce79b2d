package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/wire"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Links joins the processes of a run: a connection of its own for each edge (from actor, to actor), so that a bulky edge never
// delays another. Each edge is an Arrow stream with sequence numbers and epochs.
type Links struct {
	t       Transport
	proc    int
	hash    [32]byte // of the program: processes that disagree refuse each other
	owner   func(actors.Ref) int
	pool    *tensor.Pool
	capture string
	mu      sync.Mutex
	sys     *System
	edges   map[[2]actors.Ref]*outEdge
	conns   map[net.Conn]struct{}
	closing bool
	wg      sync.WaitGroup
	// Lost is told once of a process whose connection ended without a farewell.
	Lost func(proc int, cause error)
}

// ExitCoder is an error that knows the exit code of the command line; the code crosses processes with it.
type ExitCoder interface{ ExitCode() int }

// remoteError is an error of another process.
type remoteError struct {
	text string
	code int
}

func (e remoteError) Error() string { return e.text }
func (e remoteError) ExitCode() int { return e.code }

// NewLinks joins process proc with the others over t. The hash is that of the program; owner tells the process of an actor; capture is
// a directory that keeps what is sent, "" for none.
func NewLinks(t Transport, proc int, hash [32]byte, owner func(actors.Ref) int, capture string) *Links {
	return &Links{t: t, proc: proc, hash: hash, owner: owner, pool: tensor.NewPool(fmt.Sprintf("links of process %d", proc), 0),
		capture: capture, edges: map[[2]actors.Ref]*outEdge{}, conns: map[net.Conn]struct{}{}}
}

// Serve takes in edges for sys until Close.
func (l *Links) Serve(sys *System) {
	l.mu.Lock()
	l.sys = sys
	l.mu.Unlock()
	l.wg.Add(1)
	go func() {
		defer l.wg.Done()
		for {
			c, err := l.t.Accept()
			if err != nil {
				return
			}
			if l.keep(c) {
				l.wg.Add(1)
				go l.read(c)
			}
		}
	}()
}

func (l *Links) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		c.Close()
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

const helloSize = 4 + 4 + 4 + 4 + 32

func (l *Links) hello(from, to actors.Ref) []byte {
	b := make([]byte, helloSize)
	binary.LittleEndian.PutUint32(b, 0x4c464831) // "1HFL"
	binary.LittleEndian.PutUint32(b[4:], uint32(l.proc))
	binary.LittleEndian.PutUint32(b[8:], uint32(from))
	binary.LittleEndian.PutUint32(b[12:], uint32(to))
	copy(b[16:], l.hash[:])
	return b
}

// read delivers one edge's messages. A gap in the sequence is our bug; an end without farewell is a lost process.
func (l *Links) read(c net.Conn) {
	defer l.wg.Done()
	defer c.Close()
	b := make([]byte, helloSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	proc := int(binary.LittleEndian.Uint32(b[4:]))
	if binary.LittleEndian.Uint32(b) != 0x4c464831 || [32]byte(b[16:]) != l.hash {
		l.lost(proc, errors.New("it runs another program: start all processes from one configuration"))
		return
	}
	d := wire.NewDecoder(c, l.pool)
	for seq := uint64(1); ; seq++ {
		r, err := d.Decode()
		if err != nil {
			l.lost(proc, err)
			return
		}
		if r.To == actors.None { // the farewell
			return
		}
		if r.Seq != seq {
			l.lost(proc, fmt.Errorf("message %d came as number %d of its edge", r.Seq, seq))
			return
		}
		m := r.Message
		if r.Tensors != nil {
			m.Payload = NewPack(r.Names, r.Tensors...)
		}
		if r.Fault != "" {
			m.Err = remoteError{r.Fault, int(r.Code)}
		}
		l.sys.Send(r.To, m)
	}
}

func (l *Links) lost(proc int, err error) {
	l.mu.Lock()
	quiet := l.closing
	l.mu.Unlock()
	if !quiet && l.Lost != nil {
		l.Lost(proc, err)
	}
}

// outEdge is the sending side of an edge: a queue, bounded by the protocol's credits, and its writer.
type outEdge struct {
	l       *Links
	from    actors.Ref
	to      actors.Ref
	mu      sync.Mutex
	wake    *sync.Cond
	queue   []actors.Message
	closed  bool
	written uint64
}

// Send implements Remote.
func (l *Links) Send(to actors.Ref, m actors.Message) {
	key := [2]actors.Ref{m.From, to}
	l.mu.Lock()
	e := l.edges[key]
	if e == nil && !l.closing {
		e = &outEdge{l: l, from: m.From, to: to}
		e.wake = sync.NewCond(&e.mu)
		l.edges[key] = e
		l.wg.Add(1)
		go e.write()
	}
	l.mu.Unlock()
	if e == nil || !e.put(m) {
		release(m)
	}
}

func (e *outEdge) put(m actors.Message) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.queue = append(e.queue, m)
	e.wake.Signal()
	return true
}

func (e *outEdge) take() (actors.Message, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.queue) == 0 && !e.closed {
		e.wake.Wait()
	}
	if len(e.queue) == 0 {
		return actors.Message{}, false
	}
	m := e.queue[0]
	e.queue = e.queue[1:]
	return m, true
}

// write sends the queue in order; the last record of an edge that closes in order is a farewell.
func (e *outEdge) write() {
	defer e.l.wg.Done()
	proc := e.l.owner(e.to)
	c, err := e.l.t.Dial(proc)
	if err == nil {
		defer c.Close()
		_, err = c.Write(e.l.hello(e.from, e.to))
	}
	enc := wire.NewEncoder()
	for {
		m, ok := e.take()
		if !ok {
			break
		}
		if err == nil {
			err = e.send(c, enc, m)
		}
		release(m)
	}
	if err != nil {
		e.l.lost(proc, err)
		return
	}
	b, _, _ := enc.Encode(&wire.Record{Message: actors.Message{From: e.from}, To: actors.None})
	_, _ = b.WriteTo(c) // nobody is left to tell
}

func (e *outEdge) send(c net.Conn, enc *wire.Encoder, m actors.Message) error {
	e.written++
	r := &wire.Record{Message: m, To: e.to, Seq: e.written}
	if p, ok := m.Payload.(*Pack); ok {
		r.Names, r.Tensors = p.Names, p.Tensors
		if slices.ContainsFunc(p.Tensors, func(t *tensor.Tensor) bool { return !t.OnHost() }) {
			r.Tensors = p.Host()
		}
	}
	if m.Err != nil {
		r.Fault, r.Code = m.Err.Error(), 1
		var x ExitCoder
		if errors.As(m.Err, &x) {
			r.Code = int32(x.ExitCode())
		}
	}
	b, stream, first := enc.Encode(r)
	if e.l.capture != "" {
		if err := e.keep(b, stream, first); err != nil {
			return err
		}
	}
	_, err := b.WriteTo(c)
	return err
}

// keep appends a message to the edge's capture: one file a stream, each a standard Arrow IPC stream.
func (e *outEdge) keep(b net.Buffers, stream uint32, first bool) error {
	name := fmt.Sprintf("edge-%d-%d-%d.arrows", e.from, e.to, stream)
	f, err := os.OpenFile(filepath.Join(e.l.capture, name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if first {
		if _, err := f.Write(b[1]); err != nil {
			return err
		}
		b = b[2:]
	}
	for _, x := range b[1:] {
		if _, err := f.Write(x); err != nil {
			return err
		}
	}
	return nil
}

// Close says farewell on every edge and waits until all connections have ended.
func (l *Links) Close() {
	l.mu.Lock()
	l.closing = true
	edges := make([]*outEdge, 0, len(l.edges))
	for _, e := range l.edges {
		edges = append(edges, e)
	}
	l.mu.Unlock()
	for _, e := range edges {
		e.mu.Lock()
		e.closed = true
		e.wake.Signal()
		e.mu.Unlock()
	}
	l.t.Close()
	l.mu.Lock()
	for c := range l.conns {
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	}
	l.mu.Unlock()
	l.wg.Wait()
}
