package machine

import (
	"os/exec"
	"runtime"
	"syscall"
)

// startersMost is how many programs begin side by side: one whose start hangs, as on a file server that
// has gone, holds one of them.
const startersMost = 16

// starters are the threads that begin programs which end with this process: the system kills these when the
// thread ends that has begun them, which none of these does before the process.
var starters = newThreads(startersMost)

// threads carry out functions, each on one that lasts as long as the process.
type threads struct {
	places chan struct{} // of those that may be begun
	jobs   chan func()
}

func newThreads(most int) *threads {
	return &threads{make(chan struct{}, most), make(chan func())}
}

// do carries a function out on a thread that has nothing to do, or on a new one while there may be more,
// and returns when it has ended.
func (t *threads) do(f func()) {
	done := make(chan struct{})
	job := func() { defer close(done); f() }
	select {
	case t.jobs <- job:
	default:
		select {
		case t.jobs <- job:
		case t.places <- struct{}{}:
			go t.work(job)
		}
	}
	<-done
}

// work is a thread's life.
func (t *threads) work(job func()) {
	runtime.LockOSThread()
	for {
		job()
		job = <-t.jobs
	}
}

// StartTied starts a program that the system kills when this process ends, also where it hangs; those that
// it begins itself are not killed. Several start side by side.
func StartTied(c *exec.Cmd) (err error) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Pdeathsig = syscall.SIGKILL
	starters.do(func() { err = c.Start() })
	return err
}
