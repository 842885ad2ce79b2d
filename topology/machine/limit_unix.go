//go:build unix

package machine

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// FewFiles adds to an error of too many open files how many this process may have, and what to do. Other
// errors, and none, stay as they are.
func FewFiles(err error) error {
	if !errors.Is(err, unix.EMFILE) {
		return err
	}
	return fmt.Errorf("%w; pid %d may have %d, as ulimit -n says where it is started: raise that",
		err, unix.Getpid(), FileLimit())
}

// FileLimit is how many files this process may have open, 0 where that is not known or not limited.
func FileLimit() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Cur > 1<<40 {
		return 0
	}
	return int64(l.Cur)
}
