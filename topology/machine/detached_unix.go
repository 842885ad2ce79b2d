//go:build unix

package machine

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Detached starts a command as a process that outlives this one and its terminal. It works in dir, and
// what it writes goes to the file log there.
func Detached(dir string, command ...string) (pid int, err error) {
	return DetachedIn(dir, filepath.Join(dir, "log"), command...)
}

// DetachedIn is the same with a file of another name.
func DetachedIn(dir, file string, command ...string) (pid int, err error) {
	log, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	c := exec.Command(command[0], command[1:]...)
	c.Dir, c.Stdout, c.Stderr = dir, log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := c.Start(); err != nil {
		return 0, err
	}
	go func() { _ = c.Wait() }() // reaps it, should it end before this process
	return c.Process.Pid, nil
}

// Holder is the process that holds the lock of LockDir on a directory, 0 for none.
func Holder(dir string) int {
	name := filepath.Join(dir, ".lock")
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return 0
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return 0
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
