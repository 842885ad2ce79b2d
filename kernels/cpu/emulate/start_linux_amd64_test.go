package emulate

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"
)

// becomeFlag makes this command the traced child, which turns into the program.
const becomeFlag = "-become"

// Requests and options of ptrace(2), and others that package syscall lacks.
const (
	ptraceSeize  = 0x4206
	ptraceListen = 0x4208

	optionFork    = 1 << 1
	optionVFork   = 1 << 2
	optionClone   = 1 << 3
	optionExec    = 1 << 4
	optionSeccomp = 1 << 7
	optionKill    = 1 << 20 // the program ends with its tracer

	setNoNewPrivs = 38  // of prctl(2)
	setFilter     = 22  // PR_SET_SECCOMP of prctl(2)
	filterMode    = 2   // its argument for filters
	archPrctl     = 158 // the system call's number
	askTiles      = 0x1023
	tileData      = 18 // ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of arch_prctl(2)
)

// start runs a program up to its first instruction, traced. It starts this command again, which waits on a
// pipe until it is traced and then becomes the program.
func start(args []string) (pid int, err error) {
	program, err := exec.LookPath(args[0])
	if err != nil {
		return 0, err
	}
	wait, release, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer release.Close()
	p, err := os.StartProcess("/proc/self/exe", append([]string{"emulate", becomeFlag, program}, args...),
		&os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, wait}})
	if err != nil {
		return 0, err
	}
	wait.Close()
	const options = optionFork | optionVFork | optionClone | optionExec | optionSeccomp | optionKill
	if err := ptrace(ptraceSeize, p.Pid, options); err != nil {
		_ = p.Kill() // it may have ended
		return 0, fmt.Errorf("ptrace is not permitted: %w", err)
	}
	if _, err := space(p.Pid).move(readVM, make([]byte, 1), 0, 0, 1, 1); err != nil {
		return 0, fmt.Errorf("process_vm_readv is not permitted: %w", err)
	}
	return p.Pid, nil
}

// become replaces this process by the program args[0] with arguments args[1:] when its parent traces it.
func become(args []string) error {
	wait := os.NewFile(3, "wait")
	_, _ = wait.Read(make([]byte, 1)) // ends when the parent closes its side
	wait.Close()
	if err := filterSystemCalls(); err != nil {
		return fmt.Errorf("a filter of system calls (seccomp) is not permitted: %w", err)
	}
	return fmt.Errorf("%s: %w", args[0], syscall.Exec(args[0], args[1:], os.Environ()))
}

// filterSystemCalls makes requests for the state of tiles stop for the tracer. The filter, a classic BPF
// program on struct seccomp_data, passes on to the program and its children.
func filterSystemCalls() error {
	const (
		load    = syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS
		equal   = syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K
		answer  = syscall.BPF_RET | syscall.BPF_K
		trace   = 0x7FF00000
		allow   = 0x7FFF0000
		number  = 0
		machine = 4
		request = 16 // low half of the first argument
		amd64   = 0xC000003E
	)
	f := []syscall.SockFilter{
		{Code: load, K: machine}, {Code: equal, K: amd64, Jf: 5},
		{Code: load, K: number}, {Code: equal, K: archPrctl, Jf: 3},
		{Code: load, K: request}, {Code: equal, K: askTiles, Jf: 1},
		{Code: answer, K: trace},
		{Code: answer, K: allow},
	}
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PRCTL, setNoNewPrivs, 1, 0, 0, 0, 0); e != 0 {
		return e
	}
	p := syscall.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, setFilter, filterMode, uintptr(unsafe.Pointer(&p)))
	if e != 0 {
		return e
	}
	return nil
}

// ptrace is a request without an address.
func ptrace(request, tid int, data uintptr) error {
	if _, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, uintptr(request), uintptr(tid), 0, data, 0, 0); e != 0 {
		return e
	}
	return nil
}
