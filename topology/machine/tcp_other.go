//go:build !linux

package machine

import (
	"net"
	"time"
)

// ask sets what an idle connection asks; what was sent and is not acknowledged is tried for as long as the system likes.
func ask(c net.Conn, _ time.Duration, idle net.KeepAliveConfig) error {
	if t, ok := c.(*net.TCPConn); ok {
		return t.SetKeepAliveConfig(idle)
	}
	return nil
}

// Carried says what a connection of TCP has carried, where the system tells it.
func Carried(net.Conn) (Traffic, bool) { return Traffic{}, false }

// TryOften leaves a connection as it is.
func TryOften(net.Conn) {}
