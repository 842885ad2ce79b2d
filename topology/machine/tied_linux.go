package machine

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// starter is the thread that begins programs which end with this process: the system kills them when the
// thread ends that has begun them, which this one does not before the process.
var starter struct {
	once sync.Once
	jobs chan func()
}

// StartTied starts a program that the system kills when this process ends, also where it hangs; those that
// it begins itself are not killed.
func StartTied(c *exec.Cmd) error {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	starter.once.Do(func() {
		starter.jobs = make(chan func())
		go func() {
			runtime.LockOSThread()
			for f := range starter.jobs {
				f()
			}
		}()
	})
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	begun := make(chan error)
	starter.jobs <- func() { begun <- c.Start() }
	return <-begun
}
