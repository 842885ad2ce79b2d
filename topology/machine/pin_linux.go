package machine

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// PinThread keeps the calling thread on one of the machine's cores; where it may not, it runs anywhere.
func PinThread(core int) {
	var set unix.CPUSet
	set.Set(core % runtime.NumCPU())
	_ = unix.SchedSetaffinity(0, &set) // unpinned threads compute the same
}
