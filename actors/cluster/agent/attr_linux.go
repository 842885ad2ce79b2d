package agent

import "syscall"

// procAttr gives a process a group of its own, and lets the kernel kill it when the agent's thread that has started it
// ends, which is when the agent does: a process that is stopped would not see its connections end.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
