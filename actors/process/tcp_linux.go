package process

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// GiveUpAfter lets a connection fail when its peer has acknowledged nothing for a while, whether something
// was sent or not. By itself TCP tries for a quarter of an hour. Connections of another kind are left as
// they are.
func GiveUpAfter(c net.Conn, after time.Duration) error {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := t.SetKeepAliveConfig(keepAlive(after)); err != nil {
		return err
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	failed := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	return err
}
