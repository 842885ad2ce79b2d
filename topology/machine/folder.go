package machine

import (
	"fmt"
	"os"
)

// HoldFolder makes a folder and holds it for this process until release: what two processes wrote there
// would be mixed. It ends with the process, however that ends.
func HoldFolder(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if LockFile(f) {
		f.Close()
		return nil, fmt.Errorf("output %s is being written by another process; wait for it, or name another folder",
			dir)
	}
	return func() { f.Close() }, nil
}
