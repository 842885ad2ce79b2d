package tensor

import "fmt"

// fileSize is what a file of a pool's large buffers has at least, in bytes: all of it is reserved on the
// disk, so that no write to it can fail later.
const fileSize = 64 << 20

// Files lets the pool keep large buffers in files of a folder, which are mapped into memory: what the system
// has no room for it writes there. The files have no name and end with the pool's last buffer, or with the
// process. It is called before the first New.
func (p *Pool) Files(folder string) *Pool { p.large.folder = folder; return p }

// file makes a region of at least n bytes in a file.
func (a *arena) file(n int) (*region, error) {
	size := (max(n, fileSize) + 1<<16 - 1) >> 16 << 16
	mem, err := mapFile(a.folder, size)
	if err != nil {
		return nil, fmt.Errorf("a file of %s in %s: %w; make room there, or set plan.offload_dir to another folder",
			Bytes(int64(size)), a.folder, err)
	}
	return &region{mem: mem, Holes: NewHoles(len(mem))}, nil
}
