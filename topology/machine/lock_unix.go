//go:build unix

package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// LockDir makes dir and holds it for this process: a second run in the same directory would mix its state
// into the first's. The lock ends with the process, however that ends.
func LockDir(key, dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	path := filepath.Join(dir, ".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: the directory cannot be written: %w", key, err)
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		pid, _ := os.ReadFile(path) // without it the message names no process
		f.Close()
		return nil, fmt.Errorf("%s: %s is in use by another run, process %s; wait for it, or choose "+
			"another directory", key, dir, strings.TrimSpace(string(pid)))
	}
	_ = f.Truncate(0)                          // the number is for messages alone
	_, _ = fmt.Fprintf(f, "%d\n", os.Getpid()) // for the message above only
	return func() { f.Close() }, nil
}

// LockFile holds an open file for this process until it is closed; held is that another process holds it.
func LockFile(f *os.File) (held bool) {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == syscall.EWOULDBLOCK
}
