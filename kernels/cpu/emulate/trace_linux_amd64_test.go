package emulate

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"
)

// Events of ptrace(2) in the third byte of a status.
const (
	eventFork    = 1
	eventVFork   = 2
	eventClone   = 3
	eventExec    = 4
	eventSeccomp = 7
	eventStop    = 128
)

// thread is a traced thread with its tiles.
type thread struct {
	id    int
	image *image
	unit  unit
}

// tracer runs a program, its threads and its children.
type tracer struct {
	root    int
	threads map[int]*thread
	// early are new threads that stopped before the event that tells whose they are. They wait for it.
	early  map[int]bool
	done   map[opcode]int
	stops  int // signals that brought at least one AMX instruction
	asked  int // requests for the state of tiles
	probed int // replaced instructions
}

// newTracer prepares to follow a program that has just been started, with its first thread.
func newTracer(root int) *tracer {
	t := &tracer{root: root, threads: map[int]*thread{}, early: map[int]bool{}, done: map[opcode]int{}}
	t.threads[root] = &thread{id: root, image: &image{}}
	return t
}

// counts says what was done.
func (t *tracer) counts() string {
	sum := 0
	for _, n := range t.done {
		sum += n
	}
	return fmt.Sprintf("%d AMX instructions (%d TDPBF16PS) in %d stops; %d times asked what the processor has, %d times for tiles",
		sum, t.done[tdpBF16PS], t.stops, t.probed, t.asked)
}

// run follows the program to its end and gives its exit status; 128 and more are signals, as in shells.
// An error is a use of AMX that a processor would refuse, or a failure of ours; the program is then still there.
func (t *tracer) run() (int, error) {
	for {
		var s syscall.WaitStatus
		tid, err := syscall.Wait4(-1, &s, syscall.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("wait: %w", err)
		}
		if !s.Stopped() {
			delete(t.threads, tid)
			delete(t.early, tid)
			if tid == t.root && s.Signaled() {
				return 128 + int(s.Signal()), nil
			} else if tid == t.root {
				return s.ExitStatus(), nil
			}
			continue
		}
		th := t.threads[tid]
		if th == nil {
			t.early[tid] = true
			continue
		}
		// A thread that is killed meanwhile is no longer there; its end is told by the next status.
		if err := t.stopped(th, s.StopSignal(), int(s)>>16); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, err
		}
	}
}

// stopped does what a thread stopped for, and lets it go on.
func (t *tracer) stopped(th *thread, signal syscall.Signal, event int) error {
	switch event {
	case eventFork, eventVFork, eventClone:
		id, err := syscall.PtraceGetEventMsg(th.id)
		if err != nil {
			return err
		}
		child := &thread{id: int(id), image: th.image} // without tiles
		t.threads[child.id] = child
		if t.early[child.id] {
			delete(t.early, child.id)
			if err := syscall.PtraceCont(child.id, 0); err != nil && err != syscall.ESRCH {
				return err
			}
		}
	case eventExec:
		if err := t.became(th); err != nil {
			return err
		}
	case eventSeccomp:
		if err := t.grant(th.id); err != nil {
			return err
		}
	case eventStop:
		switch signal {
		case syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
			return ptrace(ptraceListen, th.id, 0) // stopped until SIGCONT, like any process
		}
	case 0:
		return t.signalled(th, signal)
	}
	return syscall.PtraceCont(th.id, 0)
}

// became is for a process that is another program now. The thread that asked for it has taken the place of
// the first one.
func (t *tracer) became(th *thread) error {
	former, err := syscall.PtraceGetEventMsg(th.id)
	if err != nil {
		return err
	}
	delete(t.threads, int(former))
	t.threads[th.id] = th
	th.unit = unit{}
	th.image, err = load(th.id)
	return err
}

// grant answers a request for the state of tiles in the kernel's place: the system call is left out and its result 0.
func (t *tracer) grant(tid int) error {
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(tid, &r); err != nil {
		return err
	}
	if r.Rsi != tileData {
		return nil
	}
	t.asked++
	r.Orig_rax, r.Rax = ^uint64(0), 0
	return syscall.PtraceSetRegs(tid, &r)
}

// signalled passes a signal on unless it comes from an AMX instruction or a breakpoint.
func (t *tracer) signalled(th *thread, signal syscall.Signal) error {
	if signal != syscall.SIGILL && signal != syscall.SIGTRAP {
		return syscall.PtraceCont(th.id, int(signal))
	}
	var r syscall.PtraceRegs
	if err := syscall.PtraceGetRegs(th.id, &r); err != nil {
		return err
	}
	if signal == syscall.SIGTRAP {
		p, ok := th.image.traps[r.Rip-1]
		if !ok {
			return syscall.PtraceCont(th.id, int(signal))
		}
		t.probed++
		p.do(&r)
		r.Rip += p.size - 1
		if err := syscall.PtraceSetRegs(th.id, &r); err != nil {
			return err
		}
		return syscall.PtraceCont(th.id, 0)
	}
	n, err := t.execute(th, &r)
	if err != nil {
		return err
	}
	if n == 0 {
		return syscall.PtraceCont(th.id, int(signal))
	}
	t.stops++
	if err := setRIP(th.id, r.Rip); err != nil {
		return err
	}
	return syscall.PtraceCont(th.id, 0)
}

// execute carries out the AMX instructions from RIP on, up to one of another kind, and counts them. Stops
// cost more than they do.
func (t *tracer) execute(th *thread, r *syscall.PtraceRegs) (n int, err error) {
	g := general(r)
	for ; ; n++ {
		in := th.image.at(th.id, r.Rip)
		if !in.ok {
			return n, nil
		}
		g[ripBase] = r.Rip + in.size
		if err := th.unit.execute(in.instruction, &g, space(th.id)); err != nil {
			return n, fmt.Errorf("thread %d at %#x, %v: %w", th.id, r.Rip, in.op, err)
		}
		t.done[in.op]++
		r.Rip += in.size
	}
}

// at decodes what is at an address.
func (m *image) at(tid int, address uint64) decoded {
	if d, ok := m.code[address]; ok {
		return d
	}
	var buf [longest]byte
	n, _ := space(tid).move(readVM, buf[:], address, 0, 1, len(buf)) // less than all at the end of the code
	in, ok := decode(buf[:n])
	m.code[address] = decoded{in, ok}
	return m.code[address]
}

// general gives the registers by number.
func general(r *syscall.PtraceRegs) registers {
	return registers{r.Rax, r.Rcx, r.Rdx, r.Rbx, r.Rsp, r.Rbp, r.Rsi, r.Rdi, r.R8, r.R9, r.R10, r.R11, r.R12, r.R13, r.R14, r.R15}
}

// setRIP sets the one register that AMX instructions change.
func setRIP(tid int, rip uint64) error {
	_, _, e := syscall.RawSyscall6(syscall.SYS_PTRACE, syscall.PTRACE_POKEUSR, uintptr(tid), unsafe.Offsetof(syscall.PtraceRegs{}.Rip), uintptr(rip), 0, 0)
	if e != 0 {
		return e
	}
	return nil
}
