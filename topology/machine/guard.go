package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
)

// A program that hangs sees no end of its input, and no end of who has begun it. Linux kills it then, but
// not those that it has begun itself, and other systems do not. So a small process stands beside this one:
// it is told of groups of processes, over a pipe whose end is this process's, and kills them then.

// guardWord is the only word of this program where it stands guard.
const guardWord = "lfactor-guard"

func init() {
	if len(os.Args) == 1 && os.Args[0] == guardWord {
		signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
		watch(os.Stdin, func(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }) // it may have ended
		os.Exit(0)
	}
}

// watch reads which groups there are, a line "+4711" or "-4711" each, and ends those that are left at its end.
func watch(in io.Reader, end func(group int)) {
	groups := map[int]bool{}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		n, err := strconv.Atoi(lines.Text())
		if err != nil || n == nobody {
			continue // nobody of ours says so
		}
		if n > 0 {
			groups[n] = true
		} else {
			delete(groups, -n)
		}
	}
	for n := range groups { //lfvet:order all of them end
		end(n)
	}
}

// guarded are the groups of this process's programs, and the pipe to their guard.
var guarded struct {
	mu     sync.Mutex
	groups map[int]bool
	to     *os.File // nil where there is no guard
}

// StartGuarded starts a program in a process group of its own, of which nothing outlives this process,
// however that ends. Release is to be called when it has ended, and ends what it has left behind.
func StartGuarded(c *exec.Cmd) (release func(), err error) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true
	if err := standGuard(); err != nil {
		return nil, fmt.Errorf("the guard: %w", err)
	}
	if err := StartTied(c); err != nil { // which may take long, and others end meanwhile
		return nil, err
	}
	group := c.Process.Pid
	guarded.mu.Lock()
	defer guarded.mu.Unlock()
	guarded.groups[group] = true
	if err := tellGuard(group); err != nil {
		_ = syscall.Kill(-group, syscall.SIGKILL) // it has only begun
		delete(guarded.groups, group)
		return nil, errors.Join(fmt.Errorf("nothing would end it with this process: %w", err), c.Wait())
	}
	return sync.OnceFunc(func() {
		guarded.mu.Lock()
		defer guarded.mu.Unlock()
		_ = syscall.Kill(-group, syscall.SIGKILL) // mostly nothing is left
		delete(guarded.groups, group)
		_ = tellGuard(-group) // a guard that is gone is begun anew with the next program
	}), nil
}

// standGuard has a guard stand there before there is anything to guard.
func standGuard() error {
	guarded.mu.Lock()
	defer guarded.mu.Unlock()
	if guarded.groups == nil {
		guarded.groups = map[int]bool{}
	}
	return tellGuard(nobody)
}

// nobody is the number of no group.
const nobody = 0

// tellGuard tells the guard of a group that is there, or of one that is no more, and begins a guard where
// there is none. The caller holds the lock.
func tellGuard(n int) error {
	if guarded.to != nil {
		if _, err := fmt.Fprintf(guarded.to, "%+d\n", n); err == nil {
			return nil
		}
		_ = guarded.to.Close() // whoever read it is gone
		guarded.to = nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close() //nolint:errcheck // the guard has its own
	c := exec.Command(self)
	c.Args, c.Stdin = []string{guardWord}, read
	c.Env = []string{"GOMAXPROCS=1"}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // who ends this process's group does not end it
	if err := c.Start(); err != nil {
		return errors.Join(err, write.Close())
	}
	go func() { _ = c.Wait() }() // it ends with this process
	guarded.to = write
	for g := range guarded.groups { //lfvet:order all of them are told
		if _, err := fmt.Fprintf(write, "%+d\n", g); err != nil {
			return err
		}
	}
	return nil
}
