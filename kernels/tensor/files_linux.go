package tensor

import (
	"errors"
	"os"
	"syscall"
)

// mapFile maps a new file without a name, all of whose bytes are reserved on the disk.
func mapFile(folder string, size int) ([]byte, error) {
	f, err := os.CreateTemp(folder, "lfactor-offload-")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return nil, err
	}
	if err := reserveFile(f, size); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

// reserveFile makes the file's bytes; where the file system cannot reserve them, they are written.
func reserveFile(f *os.File, size int) error {
	err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(size))
	if !errors.Is(err, syscall.EOPNOTSUPP) {
		return err
	}
	zero := make([]byte, 1<<20)
	for at := 0; at < size; at += len(zero) {
		if _, err := f.Write(zero[:min(len(zero), size-at)]); err != nil {
			return err
		}
	}
	return nil
}

// unmap ends a mapping.
func unmap(mem []byte) { _ = syscall.Munmap(mem) } // a mapping that stays is only address space
