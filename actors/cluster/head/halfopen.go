package head

import (
	"container/list"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// halfOpenMost is how many connections may be without a request at a time. A handshake takes milliseconds,
// so that those who want something are among the newest: the oldest is dropped for one more.
const halfOpenMost = 256

// halfOpen keeps those who open connections and say nothing from filling the head's memory and file
// descriptors.
type halfOpen struct {
	log func(format string, args ...any)

	mu      sync.Mutex
	waiting list.List // of net.Conn, the oldest first
	at      map[net.Conn]*list.Element
	refused int64
	logged  time.Time
}

// state is http.Server's ConnState. What it drops is closed behind it, since closing calls it again.
func (o *halfOpen) state(c net.Conn, s http.ConnState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s != http.StateNew {
		if e := o.at[c]; e != nil {
			o.waiting.Remove(e)
			delete(o.at, c)
		}
		return
	}
	if o.at == nil {
		o.at = map[net.Conn]*list.Element{}
	}
	o.at[c] = o.waiting.PushBack(c)
	if o.waiting.Len() <= halfOpenMost {
		return
	}
	old := o.waiting.Remove(o.waiting.Front()).(net.Conn)
	delete(o.at, old)
	o.refused++
	if now := time.Now(); now.Sub(o.logged) >= time.Second {
		o.logged = now
		o.log("%s is dropped: %d connections are half-open (%d dropped so far)", old.RemoteAddr(),
			halfOpenMost, o.refused)
	}
	go old.Close()
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
		fmt.Sprintf("Connections that were dropped because %d others said nothing either.", halfOpenMost))
	m.add("", o.count())
}
