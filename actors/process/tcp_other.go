//go:build !linux

package process

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
