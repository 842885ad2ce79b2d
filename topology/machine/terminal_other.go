//go:build !unix || darwin || freebsd || netbsd || openbsd || dragonfly

package machine

import "os"

// Terminal reports whether somebody may sit at the other end of a file.
func Terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}
