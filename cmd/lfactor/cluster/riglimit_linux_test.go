package cluster_test

import (
	"testing"

	"golang.org/x/sys/unix"
)

// limitFiles says how many files a process may have open from now on, and how far it may raise that.
func limitFiles(t testing.TB, pid, files, most int) {
	t.Helper()
	err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(files), Max: uint64(most)}, nil)
	if err != nil {
		t.Fatalf("the limit of files of process %d: %v", pid, err)
	}
}
