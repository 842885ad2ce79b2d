package jobs

import (
	"fmt"
	"os"

	"github.com/lfactor/lfactor/topology/machine"
)

// holdFolder makes a folder and holds it for this process until release: what two processes wrote there
// would be mixed. It ends with the process, however that ends.
func holdFolder(dir string) (release func(), err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if machine.LockFile(f) {
		f.Close()
		return nil, fmt.Errorf("output %s is being written by another process; wait for it, or name another folder",
			dir)
	}
	return func() { f.Close() }, nil
}
