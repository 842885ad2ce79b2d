//go:build !unix

package machine

import (
	"fmt"
	"os"
)

// LockDir makes dir; this system has no locks that end with a process.
func LockDir(key, dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return func() {}, nil
}

// LockFile would hold an open file for this process; here it holds none.
func LockFile(*os.File) (held bool) { return false }
