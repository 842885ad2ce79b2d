package head

import (
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/topology/machine"
)

// halfOpenMost is how many connections may be without a request at a time, or as many as there are hosts, or a quarter of
// the files that the head may open, if that is less (edge.Crowd).
const halfOpenMost = 256

// The store ends the head if it cannot open a file. So connections leave it filesKept of those that the head
// may open, and a head that may open fewer than filesLeast does not start.
const (
	filesKept  = 48
	filesLeast = 96
)

// EnoughFiles refuses a limit of open files with which a head cannot work; 0 is none.
func EnoughFiles(limit int64) error {
	if limit == 0 || limit >= filesLeast {
		return nil
	}
	return exit.With(fmt.Errorf("a head has to open %d files, and may open %d (ulimit -n): raise that where the "+
		"cluster is brought up", filesLeast, limit), exit.Unreachable)
}

// bounded is a listener of TCP that refuses connections beyond so many at a time; 0 is any number.
type bounded struct {
	net.Listener
	most   int64
	open   atomic.Int64
	refuse func(c net.Conn, most int64)
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := machine.WithSpare(b.Listener.Accept)
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= b.most || b.most == 0 {
			machine.TryOften(c)
			return &counted{c.(*net.TCPConn), sync.OnceFunc(func() { b.open.Add(-1) })}, nil
		}
		b.open.Add(-1)
		b.refuse(c, b.most)
		c.Close()
	}
}

// counted is a connection that is counted until it is closed. The system can be asked about it as about any.
type counted struct {
	*net.TCPConn
	closed func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	c.closed()
	return c.TCPConn.Close()
}

// halfOpen keeps those who open connections and say nothing from filling the head's memory and file descriptors.
type halfOpen struct {
	log     func(format string, args ...any)
	files   int64 // that the head may open, 0 for any number
	opening edge.Crowd

	mu      sync.Mutex
	refused int64
	logged  time.Time
}

// room makes room for so many hosts, which may all come at once.
func (o *halfOpen) room(hosts int) {
	most := max(halfOpenMost, hosts)
	if o.files > 0 {
		most = min(most, int(o.files/4))
	}
	o.opening.Limit(most)
}

// state is http.Server's ConnState. What it drops is closed behind it, since closing calls it again.
func (o *halfOpen) state(c net.Conn, s http.ConnState) {
	if s != http.StateNew {
		o.opening.Leave(c)
		return
	}
	if old := o.opening.Enter(c); old != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.drop(old, "half-open", int64(o.opening.Most))
		go old.Close()
	}
}

// drop counts a connection that is dropped because there are so many others, and tells once a second.
func (o *halfOpen) drop(c net.Conn, others string, n int64) {
	o.refused++
	if now := time.Now(); now.Sub(o.logged) >= time.Second {
		o.logged = now
		o.log("%s is dropped: %d connections are %s (%d dropped so far)", c.RemoteAddr(), n, others, o.refused)
	}
}

// full drops a connection for which the head has no file left.
func (o *halfOpen) full(c net.Conn, most int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(c, "open, as many as the head's files permit", most)
}

// count is how many connections were dropped.
func (o *halfOpen) count() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.refused
}

// metrics writes the count for Prometheus.
func (o *halfOpen) metrics(m *samples) {
	m.family("lfactor_half_open_connections_dropped",
		fmt.Sprintf("Connections that were dropped because %d others said nothing either, or no file was left.", o.opening.Most))
	m.add("", o.count())
}
