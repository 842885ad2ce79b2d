package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/topology/machine"
)

// Options are an agent's.
type Options struct {
	Dir  string   // of its identity, and of the files of its jobs
	Head []string // addresses of the head
	// of the heads on this machine, which are started again when they have ended
	Local   []control.LocalHead
	Leave   time.Duration // for jobs to move elsewhere when it is asked to end; 0 is 25 s
	Notice  string        // file or address that says that the host is taken back, or ""
	Addr    string        // of this host, where processes take edges
	Ports   [2]int        // they take edges at, first and last; 0 for any
	Command []string      // that is lfactor, before a job's arguments
	Binary  string        // hash of this program
	Version string
	Log     io.Writer
}

// Agent is a running agent.
type Agent struct {
	o     Options
	id    *trust.Identity
	at    atomic.Pointer[reach]
	name  string
	spawn chan func() // runs on one thread that lives as long as the agent
	quit  chan bool   // true also removes the directory

	mu     sync.Mutex // held over a step and all of its effects
	d      *decide.Agent
	ctx    context.Context // of everything but processes, which end behind it
	ending bool            // nothing is decided any more
	ways   map[int64]*control.Conn
	procs  map[int64]*proc
	dirs   map[string]string // that jobs of the cluster keep files in, with the submitter whose they are
	jobs   string            // where jobs have folders of their own
	owners map[string][2]int // user and group of submitters' jobs that have one
	begun  sync.WaitGroup    // what runs beside steps: connections, starts of processes

	children *machine.Children
	telling  sync.Mutex   // one program at a time tells of runs
	asked    atomic.Int32 // questions that wait for one
}

// Run looks after this host until the head ends it or ctx does; all processes have ended then.
func Run(ctx context.Context, o Options) error {
	id, err := trust.Load(o.Dir, nil)
	if err != nil {
		return err
	}
	who, err := id.Subject()
	if err != nil {
		return err
	}
	release, err := machine.LockDir("the agent's directory", o.Dir)
	if err != nil {
		return err
	}
	defer release()
	a := &Agent{o: o, id: id, name: who.Name, children: machine.NewChildren(), procs: map[int64]*proc{},
		d:    decide.New(decide.Options{Name: who.Name, Heads: o.Head, Leave: o.Leave, Local: len(o.Local)}),
		ways: map[int64]*control.Conn{}, owners: map[string][2]int{}, spawn: make(chan func()), quit: make(chan bool, 1)}
	if a.jobs, err = a.folders(); err != nil {
		return fmt.Errorf("where jobs have their files: %w", err)
	}
	a.logf("%s", whoRuns())
	if err := a.listen(o.Addr); err != nil {
		return err
	}
	defer func() { a.at.Load().close() }()
	if err := os.WriteFile(filepath.Join(o.Dir, control.UpFile), []byte(strconv.Itoa(os.Getpid())),
		0o600); err != nil {
		return err
	}
	// a path may be too long for a socket: then nobody on this host can ask, and all else works
	if stop, err := machine.Answer(o.Dir, AliveSocket, 0, a.alive); err == nil {
		defer stop()
	} else {
		a.logf("%v", err)
	}
	go a.spawner()
	defer close(a.spawn)
	follow, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	a.ctx = follow
	a.step(decide.Begin{})
	remove, notice := false, make(chan decide.Leave, 1)
	if o.Notice != "" {
		go heardFrom(follow, o.Notice, notice)
	}
	select {
	case <-ctx.Done():
		a.step(decide.Leave{})
		remove = <-a.quit
	case n := <-notice:
		a.step(n)
		remove = <-a.quit
	case remove = <-a.quit:
	}
	a.mu.Lock()
	a.ending = true
	a.mu.Unlock()
	cancel()
	a.endAll()
	err = nil
	if root() {
		err = os.RemoveAll(a.jobs)
	}
	if remove {
		err = errors.Join(err, os.RemoveAll(o.Dir))
	}
	return err
}

// AliveSocket is the name, as for machine.Answer, of the socket in an agent's directory that says that it decides.
const AliveSocket = "alive"

// Alive is what an agent says there.
type Alive struct {
	Host      string `json:"host"`
	Processes int    `json:"processes"`
}

func (a *Agent) alive() any {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Alive{Host: a.name, Processes: len(a.procs)}
}

// spawner starts processes on a thread of its own: a process ends with the thread that has started it, see start.
func (a *Agent) spawner() {
	runtime.LockOSThread()
	for f := range a.spawn {
		f()
	}
}

func (a *Agent) logf(format string, args ...any) {
	fmt.Fprintf(a.o.Log, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}

// info is what this host is.
func (a *Agent) info() *control.Info {
	at := a.at.Load()
	return &control.Info{Name: a.name, Addr: at.addr, Binary: a.o.Binary, Version: a.o.Version,
		Cores:  runtime.NumCPU(),
		Memory: machine.MemoryLimit("/"), Disk: machine.FreeDisk(a.o.Dir), Pid: os.Getpid(),
		Probe: at.ln.Addr().String(), Clock: time.Now().UnixNano()}
}

// endAll kills every process and waits for their ends.
func (a *Agent) endAll() {
	a.begun.Wait()
	a.mu.Lock()
	all := slices.Collect(maps.Values(a.procs))
	a.mu.Unlock()
	for _, p := range all {
		p.kill()
	}
	for _, p := range all {
		<-p.ended
	}
}

// renewed takes a fresh certificate for the key that this agent has.
func (a *Agent) renewed(text string) error {
	cert, err := trust.DecodeCert(text)
	if err != nil {
		return err
	}
	return a.id.Replace(cert)
}
