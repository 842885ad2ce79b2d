package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/topology/machine"
)

// turn numbers files that are being written.
var turn atomic.Int64

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
	spec  *control.Spec
}

// start starts a process as ordered.
func (a *Agent) start(e decide.Launch) {
	p, err := a.launch(e)
	if err = machine.FewFiles(err); err != nil {
		passing := errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM) ||
			errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOSPC)
		a.step(decide.Started{Life: e.Life, Err: err.Error(), Passing: passing})
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
	c, id, err := a.prepare(m)
	if err != nil {
		return nil, err
	}
	c.Env = append(c.Env, control.EnvTalk+"=3")
	conn, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c.ExtraFiles, c.SysProcAttr, c.WaitDelay = []*os.File{theirs}, procAttr(), 2*time.Second
	p := &proc{life: e.Life, cmd: c, talk: control.NewConn(conn, nil),
		queue: make(chan control.Message, 1<<10), ended: make(chan struct{})}
	p.log, p.spec = m.Spec.Log, m.Spec
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
		Addr: a.at.Load().addr, Ports: a.o.Ports,
		Text: id, Peers: m.Peers, Node: a.name, Hosts: e.Hosts, Code: m.Code, Procs: m.Procs,
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

// prepare is the command of a process, with its files in place, and where it finds its identity.
func (a *Agent) prepare(m control.Message) (c *exec.Cmd, identity string, err error) {
	uid, gid := 0, 0
	if m.Spec.Governed() {
		uid, gid = asWhom(m.Spec.User, root())
	}
	own, err := a.own(m.Job, uid, gid)
	if err != nil {
		return nil, "", fmt.Errorf("the job's folder: %w", err)
	}
	defer own.Close()
	args, err := place(own, m.Spec, uid, gid)
	if err != nil {
		return nil, "", err
	}
	if !m.Spec.Governed() {
		if err := os.MkdirAll(m.Spec.Dir, 0o755); err != nil {
			return nil, "", fmt.Errorf("the job's directory: %w", err)
		}
		c := exec.Command(a.o.Command[0], append(slices.Clone(a.o.Command[1:]), args...)...)
		c.Dir, c.Env = m.Spec.Dir, slices.Concat(os.Environ(), m.Spec.Env, m.Env)
		return c, a.id.Dir(), nil
	}
	conf, err := a.confinement(m.Spec, own, uid, gid)
	if err == nil {
		err = a.putIdentity(own, uid, gid)
	}
	if err != nil {
		return nil, "", err
	}
	a.mu.Lock()
	a.owners[m.Job] = [2]int{uid, gid}
	a.mu.Unlock()
	c, err = a.command(m.Spec, conf, m.Env, args...)
	return c, filepath.Join(own.Name(), identityDir), err
}

// place puts the files that came with a job into its folder, and nowhere else, and returns its arguments with the names
// that they have there. Where an administrator's job finds a file at its own name as it is, that is used.
func place(own *os.Root, s *control.Spec, uid, gid int) ([]string, error) {
	args := slices.Clone(s.Args)
	for n, name := range slices.Sorted(maps.Keys(s.Files)) {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.Dir, name)
		}
		if have, err := os.ReadFile(path); !s.Governed() && err == nil && bytes.Equal(have, s.Files[name]) {
			continue
		}
		base := filepath.Base(name)
		if !filepath.IsLocal(base) || base == "." {
			return nil, fmt.Errorf("%q is no name of a file", name)
		}
		file := filepath.Join(strconv.Itoa(n), base)
		if err := put(own, file, s.Files[name], uid, gid); err != nil {
			return nil, fmt.Errorf("file %s of the job: %w", name, err)
		}
		path = filepath.Join(own.Name(), file)
		for i := range args {
			if args[i] == name {
				args[i] = path
			} else if flag, v, ok := strings.Cut(args[i], "="); ok && v == name {
				args[i] = flag + "=" + path
			}
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
