package edge

import (
	"container/list"
	"net"
	"sync"
)

// Crowd keeps those who open connections and say nothing from the place of those who want something: beyond Most at a
// time, the address that has most of them loses its oldest. A handshake takes milliseconds, so that those who want
// something are among the newest, and an address that floods drops its own. The zero value with Most set is empty.
type Crowd struct {
	Most int

	mu      sync.Mutex
	waiting list.List // of net.Conn, the oldest first
	at      map[net.Conn]*list.Element
	of      map[string]int // by address without its port
}

// Limit sets Most while connections come.
func (c *Crowd) Limit(most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Most = most
}

// Enter takes a connection in; dropped is the one that has to go for it, nil for none. It is not closed here.
func (c *Crowd) Enter(conn net.Conn) (dropped net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at, c.of = map[net.Conn]*list.Element{}, map[string]int{}
	}
	c.at[conn] = c.waiting.PushBack(conn)
	c.of[address(conn)]++
	if c.waiting.Len() <= c.Most {
		return nil
	}
	most := 0
	for _, n := range c.of {
		most = max(most, n)
	}
	for e := c.waiting.Front(); ; e = e.Next() {
		if old := e.Value.(net.Conn); c.of[address(old)] == most {
			c.leave(old)
			return old
		}
	}
}

// Leave lets a connection go that has opened or ended, and reports whether it was still there.
func (c *Crowd) Leave(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leave(conn)
}

func (c *Crowd) leave(conn net.Conn) bool {
	e := c.at[conn]
	if e == nil {
		return false
	}
	c.waiting.Remove(e)
	delete(c.at, conn)
	host := address(conn)
	if c.of[host]--; c.of[host] == 0 {
		delete(c.of, host)
	}
	return true
}

// address is a connection's other end without its port.
func address(c net.Conn) string {
	at := c.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(at); err == nil {
		return host
	}
	return at
}
