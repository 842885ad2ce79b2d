//go:build unix

package recipe

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapped returns n numbers that lie in a file without a name, and what gives them back.
func mapped(dir string, n int64) (list []uint32, free func(), err error) {
	f, err := os.CreateTemp(dir, ".run-*")
	if err != nil {
		return nil, nil, err
	}
	err = errors.Join(os.Remove(f.Name()), fill(f, 4*n))
	var b []byte
	if err == nil {
		b, err = unix.Mmap(int(f.Fd()), 0, int(4*n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err = errors.Join(err, f.Close()); err != nil { // the mapping keeps the file
		return nil, nil, fmt.Errorf("a table of %d bytes in %s: %w", 4*n, dir, err)
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), n), func() {
		_ = unix.Munmap(b) // what stays mapped is address space alone
	}, nil
}

// fill writes zeros: a file with holes would end the process where the disk is full.
func fill(f *os.File, bytes int64) error {
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < bytes; at += int64(len(zeros)) {
		if _, err := f.Write(zeros[:min(int64(len(zeros)), bytes-at)]); err != nil {
			return err
		}
	}
	return nil
}
