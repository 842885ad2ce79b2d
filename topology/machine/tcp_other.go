//go:build !linux

package machine

import (
	"net"
	"time"
)

// GiveUpAfter lets an idle connection fail when its peer has answered nothing for a while; what was sent and
// is not acknowledged is tried for as long as the system likes.
func GiveUpAfter(c net.Conn, after time.Duration) error {
	if t, ok := c.(*net.TCPConn); ok {
		return t.SetKeepAliveConfig(keepAlive(after))
	}
	return nil
}

// Carried says what a connection of TCP has carried, where the system tells it.
func Carried(net.Conn) (busy, full time.Duration, acked int64, ok bool) { return 0, 0, 0, false }
