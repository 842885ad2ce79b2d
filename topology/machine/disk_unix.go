//go:build unix

package machine

import "golang.org/x/sys/unix"

// FreeDisk is what this user may still write below dir, in bytes; 0 where it is not known.
func FreeDisk(dir string) int64 {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
