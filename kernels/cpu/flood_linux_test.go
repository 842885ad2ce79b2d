package cpu

import (
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
)

const floods = true

// flood sends SIGURG, which the runtime preempts goroutines with, and a signal that Go hands to a channel,
// to every thread of the process in turn until stop.
func flood(stop *atomic.Bool, sent *atomic.Int64) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	defer signal.Stop(c)
	for !stop.Load() {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return
		}
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name())
			for _, s := range []syscall.Signal{syscall.SIGURG, syscall.SIGUSR1} {
				if _, _, errno := syscall.RawSyscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(id),
					uintptr(s)); errno == 0 {
					sent.Add(1)
				}
			}
		}
		runtime.Gosched()
	}
}
