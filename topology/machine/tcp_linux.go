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

// control runs f on the file of a connection of TCP; others are left as they are.
func control(c net.Conn, f func(fd int) error) error {
	t, ok := c.(tcp)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return err
	}
	if failed := raw.Control(func(fd uintptr) { err = f(int(fd)) }); failed != nil {
		return failed
	}
	return err
}

// ask sets what an idle connection asks, and how long what was sent may stay unacknowledged.
func ask(c net.Conn, after time.Duration, idle net.KeepAliveConfig) error {
	if t, ok := c.(tcp); ok {
		if err := t.SetKeepAliveConfig(idle); err != nil {
			return err
		}
	}
	return control(c, func(fd int) error {
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
}

// tcpRetryMost is TCP_RTO_MAX_MS of Linux 6.15, which golang.org/x/sys does not name.
const tcpRetryMost = 44

const queuedMost = 128 << 10 // bytes

// TryOften is for a connection at whose messages others wait: what gets lost is sent again after 30 ms at least, not 200,
// in even steps while little is on its way, and after a second at most, not two minutes. The system queues queuedMost bytes
// at most beside what is on its way, since whatever is written next waits behind them. A system that lacks one of the
// options (Linux 6.18 knows all) tries as it always does.
func TryOften(c net.Conn) {
	_ = control(c, func(fd int) error { // a connection that has ended fails where it is used
		for _, o := range [][2]int{{unix.TCP_THIN_LINEAR_TIMEOUTS, 1}, {tcpRetryMost, 1000},
			{unix.TCP_RTO_MIN_US, 30_000}, {unix.TCP_DELACK_MAX_US, 10_000},
			{unix.TCP_NOTSENT_LOWAT, queuedMost}} {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, o[0], o[1]) // it may not know the option
		}
		return nil
	})
}

// Carried says what a connection of TCP has carried; false for others.
func Carried(c net.Conn) (out Traffic, ok bool) {
	err := control(c, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return err
		}
		out, ok = Traffic{Busy: time.Duration(info.Busy_time) * time.Microsecond,
			Full: time.Duration(info.Rwnd_limited) * time.Microsecond, Acked: int64(info.Bytes_acked),
			Sent: int64(info.Data_segs_out), Again: int64(info.Total_retrans), Twice: int64(info.Dsack_dups),
			Retry: time.Duration(info.Rto) * time.Microsecond}, true
		return nil
	})
	return out, ok && err == nil
}
