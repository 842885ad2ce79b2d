//go:build unix

package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// Broken reports whether f is a pipe or a terminal whose other end is gone. A write to any socket that is
// broken raises SIGPIPE too.
func Broken(f *os.File) bool {
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLOUT}}
	for {
		switch _, err := unix.Poll(fds, 0); err {
		case unix.EINTR:
			continue
		case nil:
			return fds[0].Revents&(unix.POLLERR|unix.POLLHUP) != 0
		}
		return false
	}
}
