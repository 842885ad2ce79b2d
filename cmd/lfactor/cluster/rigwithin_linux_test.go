package cluster_test

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Within calls f in the host's network: what it listens at and dials stays there.
func (h *Host) Within(f func()) {
	h.r.t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine, since it is not as the others are
		fd, err := os.Open("/run/netns/" + h.ns)
		if err == nil {
			defer fd.Close()
			err = unix.Setns(int(fd.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		h.r.t.Fatalf("the network of %s: %v", h.Name, err)
	}
}
