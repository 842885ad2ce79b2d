package run

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/topology/machine"
)

// Where the processes of a run live, and one that was started there.
type (
	Fleet   = rollout.Fleet
	Process = rollout.Process
)

// NoRoomError is a Fleet's answer to Start where no host has room for the process, and none is waited for: the
// run makes durable what its other processes hold, and ends, to be started again with fewer replicas.
type NoRoomError struct {
	Proc int
	Why  string // and what the process needs
}

// Error names the process.
func (e *NoRoomError) Error() string { return fmt.Sprintf("process %d: %s", e.Proc, e.Why) }

// local is the fleet of one host: processes with this one's own command line, joined by unix sockets.
type local struct {
	dir     string // of the sockets
	command []string
	stderr  io.Writer

	children *machine.Children
	tied     bool // its processes end with this one, also those that are stopped and would not see their input end
}

// newLocal makes the directory of the sockets.
func newLocal(command []string, stderr io.Writer) (*local, error) {
	sweepSockets()
	dir, err := os.MkdirTemp("", "lfactor-")
	return &local{dir: dir, command: command, stderr: stderr, children: machine.NewChildren()}, err
}

// sweepSockets removes the socket folders of runs that were killed: nobody answers there any more.
func sweepSockets() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "lfactor-*", "p0.sock")) // the pattern is a good one
	for _, s := range dirs {
		c, err := net.Dial("unix", s)
		if err == nil {
			c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			os.RemoveAll(filepath.Dir(s))
		}
	}
}

// Transport implements Fleet.
func (l *local) Transport(proc int) (links.Transport, error) { return links.Unix(l.dir, proc) }

// Close implements Fleet.
func (l *local) Close() { os.RemoveAll(l.dir) }

// child is a process of this host. It ends when its standard input does, so that it does not outlive its leader.
type child struct {
	all *machine.Children
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// Start implements Fleet.
func (l *local) Start(proc int, env []string) (Process, error) {
	c := exec.Command(l.command[0], l.command[1:]...)
	c.Env = append(append(os.Environ(), env...), envSockets+"="+l.dir)
	c.Stderr = l.stderr
	// a terminal's Ctrl-C reaches the leader alone, which ends the step first
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	start := c.Start
	if l.tied {
		start = func() error { return machine.StartTied(c) }
	}
	if err := start(); err != nil {
		return nil, fmt.Errorf("process %d: %w", proc, err)
	}
	l.children.Began(c.Process.Pid)
	return &child{l.children, c, in, bufio.NewReader(out)}, nil
}

// Name implements Process.
func (c *child) Name() string { return fmt.Sprintf("pid %d", c.cmd.Process.Pid) }

// Ready implements Process.
func (c *child) Ready() error {
	line, err := c.out.ReadString('\n')
	if strings.TrimSpace(line) == "ready" {
		return nil
	}
	return errors.Join(io.EOF, err)
}

// Wait implements Process.
func (c *child) Wait() error {
	err := c.cmd.Wait()
	if err == nil {
		return nil
	}
	text, _ := c.all.End(c.cmd.ProcessState, err)
	return errors.New(text)
}

// Leave implements Process.
func (c *child) Leave() { c.in.Close() }

// Kill implements Process.
func (c *child) Kill() { _ = c.cmd.Process.Kill() } // it may have ended meanwhile
