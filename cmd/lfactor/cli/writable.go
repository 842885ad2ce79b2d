package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/configs/exit"
)

// Writable reports why a file could not be written, before the work whose result it is for: its directory has
// to be there, and to take a file. flag names the path in the error. An empty path is none.
func Writable(flag, path string) error {
	if path == "" {
		return nil
	}
	fail := func(why string) error {
		return exit.Usagef("--%s=%s cannot be written: %s; name another file", flag, path, why)
	}
	if s, err := os.Stat(path); err == nil && s.IsDir() {
		return fail("it is a directory")
	} else if err == nil {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fail(reason(err))
		}
		return f.Close()
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".lfactor-*")
	if err != nil {
		return fail(fmt.Sprintf("directory %s: %s", filepath.Dir(path), reason(err)))
	}
	_ = f.Close() // nothing was written
	return os.Remove(f.Name())
}

// reason is an error of the file system without the path.
func reason(err error) string {
	if e, ok := err.(*os.PathError); ok {
		return e.Err.Error()
	}
	return err.Error()
}
