package emulate

import (
	"fmt"
	"syscall"
	"unsafe"
)

// System calls that package syscall lacks: process_vm_readv(2) and process_vm_writev(2).
const (
	readVM  = 310
	writeVM = 311
)

// space is the memory of a traced thread.
type space int

// read reads rows of a tile from the program's memory; an address without memory is the fault that
// the processor would raise.
func (s space) read(buf []byte, address, stride uint64, rows, width int) error {
	n, err := s.move(readVM, buf, address, stride, rows, width)
	if err == nil && n < len(buf) {
		return fmt.Errorf("#PF: no memory to read at %#x", address+uint64(n/width)*stride+uint64(n%width))
	}
	return err
}

// write writes rows of a tile to the program's memory, with the same fault.
func (s space) write(buf []byte, address, stride uint64, rows, width int) error {
	n, err := s.move(writeVM, buf, address, stride, rows, width)
	if err == nil && n < len(buf) {
		return fmt.Errorf("#PF: no memory to write at %#x", address+uint64(n/width)*stride+uint64(n%width))
	}
	return err
}

// remote is an iovec of the program: an address here is none of ours.
type remote struct{ base, length uint64 }

// move gives the bytes that could be moved, rows in order.
func (s space) move(call uintptr, buf []byte, address, stride uint64, rows, width int) (int, error) {
	var there [tileRows]remote
	count := rows
	if stride == uint64(width) {
		count, width = 1, rows*width
	}
	for i := range count {
		there[i] = remote{address + uint64(i)*stride, uint64(width)}
	}
	here := syscall.Iovec{Base: unsafe.SliceData(buf), Len: uint64(len(buf))}
	n, _, e := syscall.RawSyscall6(call, uintptr(s), uintptr(unsafe.Pointer(&here)), 1, uintptr(unsafe.Pointer(&there[0])), uintptr(count), 0)
	switch e {
	case 0:
		return int(n), nil
	case syscall.EFAULT:
		return 0, nil
	}
	return 0, fmt.Errorf("memory at %#x: %w", address, e)
}
