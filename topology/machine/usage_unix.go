//go:build unix

package machine

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// CPUSeconds is the time that this process has had a processor, user and system.
func CPUSeconds() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

// ResidentBytes is the memory that this process holds now, its peak where the system tells no more.
func ResidentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(b)
	if err != nil || len(fields) < 2 {
		return PeakRSS()
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return PeakRSS()
	}
	return pages * int64(os.Getpagesize())
}
