package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/wire"
	"github.com/lfactor/lfactor/kernels/tensor"
)

// Links joins the processes of a run: a connection of its own for each edge (from actor, to actor), so that
// a bulky edge never delays another. Each edge is an Arrow stream with sequence numbers and epochs.
type Links struct {
	t           Transport
	proc        int
	life        uint32   // how often this process was started before
	hash        [32]byte // of the program: processes that disagree refuse each other
	owner       func(actors.Ref) int
	pool        *tensor.Pool
	mu          sync.Mutex
	sys         Actors     // nil before Serve
	coordinator actors.Ref // hears of messages that cannot be taken in
	edges       map[[2]actors.Ref]*outEdge
	conns       map[net.Conn]bool
	lives       map[int]uint32 // by process: the newest that has said hello
	fence       fence
	channels    channels
	pulses      map[int]*pulse
	over        chan struct{} // closed by Close
	closing     bool
	wg          sync.WaitGroup
	// Lost is told of each connection with a process that ended without a farewell, and of the epoch that it was of.
	Lost func(proc int, epoch uint32, cause error)
	// Tell, where it is set, is asked with every beat what process 0 is to hear, at most a megabyte, and
	// knows how the clock of that one stands to this one's. Told hears it there.
	Tell func(clock Offset) []byte
	Told func(proc int, text []byte)
	// Explain is what Ask hears in another process; nil for nothing.
	Explain func() []byte
	// Slow hears in process 0 of a way between processes that has become slow, from the one that sends there.
	Slow func(proc int, text string)

	clock  func() time.Duration // of tests; nil for the system's
	clocks map[int]Offset       // by process, as it has measured them

	losses     losses
	took       atomic.Int64
	outs       map[net.Conn]int // what carries what this process sends, and to which it does
	gone       map[int]carried  // of connections that have ended, by process
	complaints []string         // for process 0
}

// ExitCoder is an error that knows the exit code of the command line; the code crosses processes with it.
type ExitCoder interface{ ExitCode() int }

// Traced is an error that knows the stack of the panic that it was, empty where it was none. The stack
// crosses processes with it, for the run's log.
type Traced interface{ Trace() []byte }

// remoteError is an error of another process.
type remoteError struct {
	text  string
	code  int
	stack []byte
}

func (e remoteError) Error() string { return e.text }
func (e remoteError) ExitCode() int { return e.code }

// Trace implements Traced.
func (e remoteError) Trace() []byte { return e.stack }

// New joins process proc with the others over t. The process was started life times before; the hash is
// that of the program; owner tells the process of an actor.
func New(t Transport, proc, life int, hash [32]byte, owner func(actors.Ref) int) *Links {
	return &Links{t: t, proc: proc, life: uint32(life), hash: hash, owner: owner,
		pool: tensor.NewPool(fmt.Sprintf("links of process %d", proc), 0), edges: map[[2]actors.Ref]*outEdge{},
		conns: map[net.Conn]bool{}, lives: map[int]uint32{}, clocks: map[int]Offset{}, outs: map[net.Conn]int{},
		gone: map[int]carried{}, pulses: map[int]*pulse{}, over: make(chan struct{})}
}

// Actors are those of this process, whom messages from others are for.
type Actors interface {
	// Send delivers a message; it takes over the payload's reference.
	Send(to actors.Ref, m actors.Message)
	// Since is the time since this process's part of the run began.
	Since() time.Duration
}

// Serve takes in edges for sys until Close. The coordinator hears of messages that cannot be taken in, which
// end the run.
func (l *Links) Serve(sys Actors, coordinator actors.Ref) {
	l.mu.Lock()
	l.sys, l.coordinator = sys, coordinator
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

// keep enters a connection among those to close at the end. It returns false, with the connection
// closed, if the end has come already.
func (l *Links) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closing {
		c.Close()
		return false
	}
	l.conns[c] = false
	return true
}

const helloSize = 6*4 + 32

// hello is the first thing written to a connection: who calls, in which life and epoch, for which pair of actors,
// and the hash of the layout, by which processes of different runs tell each other apart.
func (l *Links) hello(from, to actors.Ref, epoch uint32) []byte {
	b := make([]byte, helloSize)
	binary.LittleEndian.PutUint32(b, 0x4c464831) // "1HFL"
	for i, v := range []uint32{uint32(l.proc), l.life, uint32(from), uint32(to), epoch} {
		binary.LittleEndian.PutUint32(b[4+4*i:], v)
	}
	copy(b[helloSize-32:], l.hash[:])
	return b
}

// admit reports whether a hello is that of the newest life of its process.
func (l *Links) admit(proc int, life uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if life < l.lives[proc] {
		return false
	}
	l.lives[proc] = life
	return true
}

// forget closes a connection that has ended and drops it from those to close later.
func (l *Links) forget(c net.Conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	c.Close()
}

// read delivers one edge's messages. A gap in the sequence is our bug; an end without farewell is a lost process.
func (l *Links) read(c net.Conn) {
	defer l.wg.Done()
	defer l.forget(c)
	b := make([]byte, helloSize)
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	proc, life, from, epoch := said(b)
	if binary.LittleEndian.Uint32(b) != 0x4c464831 || [32]byte(b[helloSize-32:]) != l.hash {
		l.lost(proc, epoch, errors.New("it runs another program: start all processes from one configuration "+
			"and with one build of lfactor"))
		return
	}
	if !l.admit(proc, life) {
		l.fence.refused.Add(1)
		return
	}
	if from == asking || from == beating {
		l.beside(c, from, proc, life)
		return
	}
	d := wire.NewDecoder(counted{c, &l.took}, l.pool)
	var end *channelEnd
	defer func() { l.closeEnd(end) }()
	for seq := uint64(1); ; seq++ {
		r, err := d.Decode()
		if err != nil {
			l.lost(proc, epoch, err)
			return
		}
		if r.To == actors.None { // the farewell
			return
		}
		if r.Seq != seq {
			l.lost(proc, epoch, fmt.Errorf("message %d came as number %d of its edge", r.Seq, seq))
			return
		}
		m := r.Message
		l.raise(m.Epoch)
		switch {
		case len(r.Names) == 1 && r.Names[0] == byChannel:
			var p *Pack
			p, end, err = l.fetch(r, end, proc, epoch)
			Release(actors.Message{Payload: NewPack(nil, r.Tensors...)})
			var no refusal
			switch {
			case errors.As(err, &no):
				l.sys.Send(l.coordinator, actors.Message{Kind: actors.Failed, From: r.To,
					Epoch: actors.AnyEpoch, Err: no})
				return
			case err != nil && epoch >= l.fence.newest.Load():
				l.lost(proc, epoch, err)
				return
			case err != nil: // the channel of an epoch that is over
				return
			}
			m.Payload = p
		case r.Payload: // of no tensors too: a part of a collective has one
			m.Payload = NewPack(r.Names, r.Tensors...)
		}
		if !l.fence.pass(&m) {
			Release(m)
			continue
		}
		if r.Fault != "" {
			m.Err = remoteError{r.Fault, int(r.Code), []byte(r.Stack)}
		}
		l.sys.Send(r.To, m)
	}
}

// beside takes in a connection that carries no messages.
func (l *Links) beside(c net.Conn, from actors.Ref, proc int, life uint32) {
	if from == asking {
		l.explain(c)
		return
	}
	l.listen(c, proc, life)
}

// lost ends the channels to a process whose connection broke and reports it. Channels of a later epoch are new ones and
// stay. While the links close, lost connections are expected and not reported.
func (l *Links) lost(proc int, epoch uint32, err error) {
	l.mu.Lock()
	quiet := l.closing
	l.mu.Unlock()
	l.abortWhere(func(e *channelEnd) bool { return e.proc == proc && e.epoch <= epoch })
	if !quiet && l.Lost != nil {
		l.Lost(proc, epoch, err)
	}
}

// fence keeps messages of epochs that are over from this process: those of a process that was lost, or was
// only thought to be.
type fence struct {
	newest  atomic.Uint32 // epoch of any message that was sent or came
	refused atomic.Int64
}

// raise takes in the epoch of a message, and reports whether it is the newest yet.
func (f *fence) raise(epoch uint32) (newer bool) {
	for old := f.newest.Load(); epoch != actors.AnyEpoch && epoch > old; old = f.newest.Load() {
		if f.newest.CompareAndSwap(old, epoch) {
			return true
		}
	}
	return false
}

// pass reports whether a message that came may be delivered. A rank that is back does not know the epoch yet.
func (f *fence) pass(m *actors.Message) bool {
	f.raise(m.Epoch)
	if m.Epoch >= f.newest.Load() || m.Kind == actors.Join {
		return true
	}
	f.refused.Add(1)
	return false
}

// Took is how many bytes of messages have come: while it grows, what a step waits for may be on its way.
func (l *Links) Took() int64 { return l.took.Load() }

// counted counts what is read.
type counted struct {
	io.Reader
	n *atomic.Int64
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// Refused counts messages and connections that were refused because their epoch or their process's life was over.
func (l *Links) Refused() int64 { return l.fence.refused.Load() }

// Buffers counts the tensors' storage that messages from other processes still have.
func (l *Links) Buffers() int { return l.pool.Buffers() }

// outEdge is the sending side of an edge: a queue, bounded by the protocol's credits, and its writer.
type outEdge struct {
	l      *Links
	from   actors.Ref
	to     actors.Ref
	mu     sync.Mutex
	wake   *sync.Cond
	queue  []actors.Message
	closed bool
}

// Way says how what is sent to an actor of another process gets there.
func (l *Links) Way(to actors.Ref) string {
	way := "connection"
	if t, ok := l.t.(interface{ Way() string }); ok {
		way = t.Way()
	}
	return fmt.Sprintf("%s to process %d", way, l.owner(to))
}

// Send takes a message to an actor of another process; it takes over the payload's reference.
func (l *Links) Send(to actors.Ref, m actors.Message) {
	if l.owner(to) == l.proc { // it is not there yet: it asks when it is
		Release(m)
		return
	}
	l.raise(m.Epoch)
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
		Release(m)
	}
}

// put queues a message for the goroutine that writes. It returns false once the edge is closed,
// when the caller still owns the payload.
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

// take waits for the next message. After the closing it still gives what was queued before, and then false.
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

// Close says farewell on every edge and waits until all connections have ended.
func (l *Links) Close() {
	l.mu.Lock()
	l.closing = true
	close(l.over)
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
		_ = c.SetReadDeadline(time.Now().Add(lastNews)) // a connection that takes none fails below
	}
	l.mu.Unlock()
	all := func() { l.abortWhere(func(*channelEnd) bool { return true }) }
	late := time.AfterFunc(lastNews, all)
	l.wg.Wait()
	late.Stop()
	all()
}
