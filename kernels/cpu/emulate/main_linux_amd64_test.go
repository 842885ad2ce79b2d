// Package emulate is an emulator, built as the test binary of this folder (TestMain): it runs a program that uses AMX on a
// processor without it, so that kernels/cpu's level amx can be tested anywhere:
//
//	go test -c -o /tmp/emulate ./kernels/cpu/emulate
//	LFACTOR_CPU=amx go test -exec /tmp/emulate ./kernels/cpu
//
// It traces the program (ptrace(2)), its threads and its children. AMX instructions, which raise SIGILL, are
// computed here as the Intel SDM defines them; a use that breaks a rule of the SDM ends the program. The
// program also sees that the processor and the kernel offer AMX: kernels/cpu's CPUID and XGETBV are replaced
// by breakpoints, and the system call that asks for the state of tiles is answered here. Everything else,
// signals among it, is left alone. The exit status is the program's, whose end is that of its children too.
package emulate

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// failed is the exit status where the program could not be run or broke a rule.
const failed = 125

// Requests of ptrace belong to the thread that traces, and the traced thread has to be the one that becomes
// the program: both are the main one.
func init() { runtime.LockOSThread() }

// emulate runs a program and computes for it the instructions that this processor lacks. It ends with
// the program's own exit status.
func emulate() {
	if len(os.Args) > 2 && os.Args[1] == becomeFlag {
		fail(become(os.Args[2:]))
	}
	flags := flag.NewFlagSet("emulate", flag.ExitOnError)
	count := flags.Bool("count", false, "say on standard error how many instructions were computed")
	flags.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: emulate [-count] PROGRAM ARGS...")
		flags.PrintDefaults()
	}
	_ = flags.Parse(os.Args[1:]) // ends the process where it fails
	if flags.NArg() == 0 {
		flags.Usage()
		os.Exit(2)
	}
	pid, err := start(flags.Args())
	if err != nil {
		fail(err)
	}
	passOn(pid)
	t := newTracer(pid)
	status, err := t.run()
	if *count {
		fmt.Fprintln(os.Stderr, "emulate:", t.counts())
	}
	if err != nil {
		fail(err)
	}
	os.Exit(status)
}

// fail ends this process, and with it the program if it runs (PTRACE_O_EXITKILL).
func fail(err error) {
	fmt.Fprintln(os.Stderr, "emulate:", strings.TrimSpace(err.Error()))
	os.Exit(failed)
}

// passOn hands signals that ask the program to end to it. An interrupt from a terminal reaches it anyway.
func passOn(pid int) {
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP)
	go func() {
		for s := range c {
			if s != syscall.SIGINT {
				_ = syscall.Kill(pid, s.(syscall.Signal)) // the program may have ended
			}
		}
	}()
}
