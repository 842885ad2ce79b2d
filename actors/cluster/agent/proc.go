package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/topology/machine"
)

// proc is a process of a job.
type proc struct {
	life  int64 // its number for what decides
	pid   int
	cmd   *exec.Cmd
	in    io.Closer // ends a worker; nil for the process that leads
	talk  *control.Conn
	queue chan control.Message // to the process
	ended chan struct{}
	log   string // directory in which it answers why
}

// start starts a process as ordered.
func (a *Agent) start(e decide.Launch) {
	p, err := a.launch(e)
	if err = machine.FewFiles(err); err != nil {
		a.step(decide.Started{Life: e.Life, Err: err.Error()})
		return
	}
	a.mu.Lock()
	a.procs[e.Life] = p
	a.mu.Unlock()
	a.step(decide.Started{Life: e.Life, Pid: p.pid})
	a.attendProc(p)
}

// launch prepares the files and starts the process.
func (a *Agent) launch(e decide.Launch) (*proc, error) {
	m := e.Order
	args, err := a.place(m)
	if err != nil {
		return nil, err
	}
	c := exec.Command(a.o.Command[0], append(slices.Clone(a.o.Command[1:]), args...)...)
	c.Dir = m.Spec.Dir
	c.Env = append(slices.Concat(os.Environ(), m.Spec.Env, m.Env), control.EnvTalk+"=3")
	conn, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c.ExtraFiles, c.SysProcAttr, c.WaitDelay = []*os.File{theirs}, procAttr(), 2*time.Second
	p := &proc{life: e.Life, cmd: c,
		talk:  control.NewConn(conn, nil),
		queue: make(chan control.Message, 1<<10), ended: make(chan struct{})}
	p.log = m.Spec.Log
	if m.Proc > 0 {
		if p.in, err = c.StdinPipe(); err != nil {
			conn.Close()
			return nil, err
		}
	}
	if err := a.wire(p, m.Proc > 0); err != nil {
		conn.Close()
		return nil, err
	}
	p.pass(control.Message{Kind: control.Welcome, Job: m.Job, Proc: m.Proc, Gen: m.Gen, Epoch: m.Epoch,
		Addr: a.o.Addr, Ports: a.o.Ports,
		Text: a.id.Dir(), Peers: m.Peers, Node: a.name, Hosts: e.Hosts, Code: m.Code, Procs: m.Procs,
		Spec: &control.Spec{Procs: m.Spec.Procs}})
	return p, nil
}

// pair is a connection with a process that is to be started, and the end that it inherits.
func pair() (net.Conn, *os.File, error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "process")
	defer ours.Close() // FileConn has a copy of it
	c, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
	}
	return c, theirs, err
}

// wire joins the output of a process with the head and starts it.
func (a *Agent) wire(p *proc, worker bool) error {
	out := &output{a: a, p: p, stream: "stdout", ready: worker}
	p.cmd.Stdout, p.cmd.Stderr = out, &output{a: a, p: p, stream: "stderr"}
	started := make(chan error)
	a.spawn <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	p.pid = p.cmd.Process.Pid
	a.children.Began(p.pid)
	return nil
}

// place puts a job's files where its arguments name them, if they are not there. Where another file has
// the place, the job's own copy is used, and the argument names that.
func (a *Agent) place(m control.Message) ([]string, error) {
	args := slices.Clone(m.Spec.Args)
	if err := os.MkdirAll(m.Spec.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("the job's directory: %w", err)
	}
	own := filepath.Join(a.o.Dir, "jobs", m.Job)
	for name, text := range m.Spec.Files {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(m.Spec.Dir, name)
		}
		have, err := os.ReadFile(path)
		switch {
		case err == nil && bytes.Equal(have, text):
			continue
		case err == nil:
			if err := os.MkdirAll(own, 0o700); err != nil {
				return nil, err
			}
			path = filepath.Join(own, filepath.Base(name))
			for i := range args {
				if args[i] == name {
					args[i] = path
				} else if flag, v, ok := strings.Cut(args[i], "="); ok && v == name {
					args[i] = flag + "=" + path
				}
			}
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return nil, err
		}
	}
	return args, nil
}

// attendProc carries messages from and to a process, and tells of its end.
func (a *Agent) attendProc(p *proc) {
	go func() {
		for {
			select {
			case m := <-p.queue:
				if p.talk.Send(m) != nil {
					p.talk.Close()
				}
			case <-p.ended:
				return
			}
		}
	}()
	var heard sync.WaitGroup
	heard.Go(func() { a.listenTo(p) })
	go func() {
		err := p.cmd.Wait()
		p.talk.Close()
		heard.Wait()
		text, code := a.children.End(p.cmd.ProcessState, err)
		a.step(decide.Exited{Life: p.life, Text: text, Code: code})
		a.mu.Lock()
		delete(a.procs, p.life)
		a.mu.Unlock()
		close(p.ended)
	}()
}

// pass hands a message to a process. One that does not read a thousand messages has hung, and is ended.
func (p *proc) pass(m control.Message) {
	select {
	case p.queue <- m:
	default:
		p.kill()
	}
}

func (p *proc) kill() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) } // it may have ended

// finish asks a process to end when its step is done.
func (p *proc) finish() {
	if p.in != nil {
		p.in.Close()
		return
	}
	_ = p.cmd.Process.Signal(machine.EndSignal()) // it may have ended
}

// output sends what a process writes to the head, by whole lines where they come so. A worker's line
// "ready" is a message of its own.
type output struct {
	a      *Agent
	p      *proc
	stream string
	ready  bool // wants the worker's word
	line   []byte
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	n := len(b)
	if o.ready {
		o.line = append(o.line, b...)
		word, rest, ok := bytes.Cut(o.line, []byte("\n"))
		if !ok && len(o.line) < 1<<10 {
			return n, nil
		}
		o.ready = false
		b = o.line
		if ok && string(bytes.TrimSpace(word)) == "ready" {
			b = rest
			o.a.step(decide.Ready{Life: o.p.life})
		}
	}
	if len(b) > 0 {
		o.a.step(decide.Wrote{Life: o.p.life, Stream: o.stream, Data: bytes.Clone(b)})
	}
	return n, nil
}
