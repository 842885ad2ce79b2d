package machine

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tcp is a connection of TCP, or what embeds one.
type tcp interface {
	syscall.Conn
	SetKeepAliveConfig(net.KeepAliveConfig) error
}

// GiveUpAfter lets a connection fail when its peer has acknowledged nothing for a while, whether something was sent or
// not. By itself TCP tries for a quarter of an hour. Connections of another kind are left as they are.
func GiveUpAfter(c net.Conn, after time.Duration) error {
	t, ok := c.(tcp)
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

// Carried says how long a connection of TCP has had something on its way that was not acknowledged yet, how
// long of that it was the receiver that had no room, and how many bytes were acknowledged; false for others.
func Carried(c net.Conn) (busy, full time.Duration, acked int64, ok bool) {
	t, ok := c.(tcp)
	if !ok {
		return 0, 0, 0, false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return 0, 0, 0, false
	}
	var info *unix.TCPInfo
	failed := raw.Control(func(fd uintptr) {
		info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if failed != nil || err != nil {
		return 0, 0, 0, false
	}
	return time.Duration(info.Busy_time) * time.Microsecond, time.Duration(info.Rwnd_limited) * time.Microsecond,
		int64(info.Bytes_acked), true
}
