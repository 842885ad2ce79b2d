package ckpt

import (
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
)

// growingEvery is how often a destination is looked at.
const growingEvery = time.Second

// growing says on out how much has been written to a destination, until the returned function is called. What is written
// first lies beside it or below it under a name that begins with a point, and counts too.
func growing(out io.Writer, dst string) func() {
	see, end := cli.Tell(out, "reading")
	stop, done := make(chan struct{}), make(chan struct{})
	before := written(dst)
	go func() {
		defer close(done)
		tick := time.NewTicker(growingEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				if mib := int((written(dst) - before) >> 20); mib > 0 {
					see("writing "+dst+", MiB", mib, 0)
				}
			}
		}
	}()
	return func() { close(stop); <-done; end() }
}

// written is the bytes of a file or folder, and of what lies beside it under its name behind a point.
func written(dst string) (n int64) {
	dir, base := filepath.Split(filepath.Clean(dst))
	hidden, _ := filepath.Glob(filepath.Join(dir, "."+base+"*")) // a name that is a pattern finds less
	for _, path := range append(hidden, dst) {
		_ = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error { // what goes meanwhile counts no more
			if err != nil {
				return nil //nolint:nilerr // it is not there yet, or not any more
			}
			if i, err := e.Info(); err == nil && !e.IsDir() && !strings.HasSuffix(name, ".lock") {
				n += i.Size()
			}
			return nil
		})
	}
	return n
}
