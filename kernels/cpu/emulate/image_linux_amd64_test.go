package emulate

import (
	"bytes"
	"debug/elf"
	"debug/gosym"
	"fmt"
	"syscall"
)

// image is the code of a program, the same in all threads and in children that have not become another program.
type image struct {
	traps map[uint64]trap
	code  map[uint64]decoded // by address
}

// decoded is what is at an address; ok is false for anything but an AMX instruction.
type decoded struct {
	instruction
	ok bool
}

// trap is a breakpoint in the place of an instruction.
type trap struct {
	size uint64 // of the instruction
	do   func(r *syscall.PtraceRegs)
}

const breakpoint = 0xCC // INT3

// replaced are the instructions that tell whether there is AMX: the one occurrence of code in the function.
var replaced = []struct {
	function string
	code     []byte
	do       func(r *syscall.PtraceRegs)
}{
	{"github.com/lfactor/lfactor/kernels/cpu.cpuid", []byte{0x0F, 0xA2}, tellCPUID},
	{"github.com/lfactor/lfactor/kernels/cpu.xgetbv", []byte{0x0F, 0x01, 0xD0}, tellXCR0},
}

// tellCPUID is CPUID of a processor with AMX-TILE and AMX-BF16.
func tellCPUID(r *syscall.PtraceRegs) {
	leaf, sub := uint32(r.Rax), uint32(r.Rcx)
	a, b, c, d := cpuid(leaf, sub)
	if leaf == 7 && sub == 0 {
		d |= 1<<22 | 1<<24
	}
	r.Rax, r.Rbx, r.Rcx, r.Rdx = uint64(a), uint64(b), uint64(c), uint64(d)
}

// tellXCR0 is XGETBV of a system that saves the configuration and the data of tiles.
func tellXCR0(r *syscall.PtraceRegs) {
	a, d := xgetbv(uint32(r.Rcx))
	if uint32(r.Rcx) == 0 {
		a |= 1<<17 | 1<<18
	}
	r.Rax, r.Rdx = uint64(a), uint64(d)
}

// load reads the program that a process has just become and sets the breakpoints in it. A program without
// the functions runs as it is: children may be anything.
func load(pid int) (*image, error) {
	m := &image{traps: map[uint64]trap{}, code: map[uint64]decoded{}}
	f, err := elf.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return m, nil // a script's interpreter is one that can be read; what is none is not ours
	}
	defer f.Close()
	functions, text, err := goFunctions(f)
	if err != nil {
		return nil, err
	}
	for _, p := range replaced {
		for i := range functions {
			fn := &functions[i]
			if fn.Name != p.function || fn.Entry < text.Addr || fn.End > text.Addr+text.Size {
				continue
			}
			code := make([]byte, fn.End-fn.Entry)
			if _, err := text.ReadAt(code, int64(fn.Entry-text.Addr)); err != nil {
				return nil, err
			}
			at := bytes.Index(code, p.code)
			if at < 0 {
				continue // a wrapper for another calling convention
			}
			if f.Type != elf.ET_EXEC {
				return nil, fmt.Errorf("the program is position-independent; build it with -buildmode=exe")
			}
			address := fn.Entry + uint64(at)
			if _, err := syscall.PtracePokeText(pid, uintptr(address), []byte{breakpoint}); err != nil {
				return nil, fmt.Errorf("setting a breakpoint in %s: %w", p.function, err)
			}
			m.traps[address] = trap{uint64(len(p.code)), p.do}
		}
	}
	return m, nil
}

// goFunctions lists the functions of a Go program from its line table, which is there even if symbols are
// stripped; none for another program.
func goFunctions(f *elf.File) ([]gosym.Func, *elf.Section, error) {
	table, text := f.Section(".gopclntab"), f.Section(".text")
	if table == nil || text == nil {
		return nil, nil, nil
	}
	data, err := table.Data()
	if err != nil {
		return nil, nil, err
	}
	t, err := gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
	if err != nil {
		return nil, nil, fmt.Errorf("line table: %w", err)
	}
	return t.Funcs, text, nil
}
