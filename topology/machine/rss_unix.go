//go:build unix

// Package machine is what the operating system tells a process of itself and lends it: memory, processor
// time, locks on directories, cores.
package machine

import (
	"runtime"
	"syscall"
	"time"
)

// PeakRSS is the most memory that this process has held, in bytes, as the system counts it.
func PeakRSS() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return u.Maxrss
	}
	return u.Maxrss << 10
}

// ProcessorTime is what this process has used of its processors.
func ProcessorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
