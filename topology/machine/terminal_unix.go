//go:build unix && !darwin && !freebsd && !netbsd && !openbsd && !dragonfly

package machine

import (
	"os"

	"golang.org/x/sys/unix"
)

// Terminal reports whether somebody may sit at the other end of a file: /dev/null is a character device as well, and
// nobody types there.
func Terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
