package host

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"syscall"
)

// peerOf is the process that listens at the other end of a unix connection, 0 where it is not known.
func peerOf(c net.Conn) (pid int) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { // a connection that is closed has no peer
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// states are what the letters of /proc/PID/stat stand for.
var states = map[byte]string{'R': Running, 'S': "asleep and does not answer",
	'D': "in an uninterruptible wait, as for a disk", 'T': "stopped (by a signal or from the terminal)",
	't': "stopped by a debugger", 'Z': "dead"}

// StateOf says what the system knows of a process.
func StateOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "gone"
	}
	if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) {
		return states[b[i+2]]
	}
	return ""
}
