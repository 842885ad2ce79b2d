package tensor

import (
	"os"
	"syscall"
)

// reserve maps size bytes of address space, nil if the system refuses.
func reserve(size int) []byte {
	mem, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil
	}
	return mem
}

// discard gives the whole pages of mem back; they read as 0 afterwards.
func discard(mem []byte) {
	page := os.Getpagesize()
	from := int(-addressOf(mem) & uintptr(page-1))
	if n := (len(mem) - from) / page * page; n > 0 {
		// memory that stays is only slower to come by for others
		_ = syscall.Madvise(mem[from:from+n], syscall.MADV_DONTNEED)
	}
}
