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

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/depot"
	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/topology/machine"
)

// Options are an agent's.
type Options struct {
	Dir  string   // of its identity, and of the files of its jobs
	Head []string // addresses of the head
	// of the heads on this machine, which are started again when they have ended
	Local   []control.LocalHead
	Addr    string   // of this host, where processes take edges
	Ports   [2]int   // they take edges at, first and last; 0 for any
	Command []string // that is lfactor, before a job's arguments
	Binary  string   // hash of this program
	Version string
	Log     io.Writer
}

// Agent is a running agent.
type Agent struct {
	o     Options
	id    *trust.Identity
	ln    *edge.Listener // for probes, and for those who use this host's storage
	depot *depot.Server
	name  string
	mu    sync.Mutex
	head  *control.Conn     // nil while there is none
	late  []control.Message // for the head, until there is one
	lost  int               // messages that did not fit into late
	procs map[key]*proc
	known control.Message      // the newest word on hosts and directories
	over  map[key]control.Proc // those that have ended, until their job has or they have a successor
	spawn chan func()          // runs on one thread that lives as long as the agent
	quit  chan bool            // true also removes the directory
	done  <-chan struct{}
	met   atomic.Bool   // a head was met before
	term  int64         // of the newest head that was met
	tails map[key]*tail // what processes wrote last, for a head that has not got it

	children *machine.Children
}

type key struct {
	job  string
	proc int
}

// keepLate is how many messages wait for a head that is away.
const keepLate = 1 << 12

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
	a := &Agent{o: o, id: id, name: who.Name, children: machine.NewChildren(), procs: map[key]*proc{},
		over:  map[key]control.Proc{},
		tails: map[key]*tail{},
		spawn: make(chan func()), quit: make(chan bool, 1)}
	if err := a.listen(); err != nil {
		return err
	}
	defer a.depot.Close()
	defer a.ln.Close()
	if err := os.WriteFile(filepath.Join(o.Dir, control.UpFile), []byte(strconv.Itoa(os.Getpid())),
		0o600); err != nil {
		return err
	}
	go a.spawner()
	defer close(a.spawn)
	follow, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	a.done = follow.Done()
	var wg sync.WaitGroup
	wg.Go(func() { a.follow(follow) })
	if len(o.Head) > 1 && len(o.Local) > 0 { // follow is busy with another head
		wg.Go(func() { a.watchHeads(follow) })
	}
	remove := false
	select {
	case <-ctx.Done():
		remove = a.leave()
	case remove = <-a.quit:
	}
	cancel()
	a.endAll()
	wg.Wait()
	if remove {
		return os.RemoveAll(o.Dir)
	}
	return nil
}

// leaveLimit is how long jobs have to make their step durable and to move when this host is asked to leave.
const leaveLimit = 25 * time.Second

// leave lets the processes of this host move elsewhere before the agent ends.
func (a *Agent) leave() (remove bool) {
	a.mu.Lock()
	idle := len(a.procs) == 0
	a.mu.Unlock()
	if idle {
		return false
	}
	a.tell(control.Message{Kind: control.Leaving})
	select {
	case remove = <-a.quit:
	case <-time.After(leaveLimit):
		a.logf("processes have not moved within %v: they end with this agent", leaveLimit)
	}
	return remove
}

// spawner starts processes on a thread of its own: a process ends with the thread that has started it,
// see start.
func (a *Agent) spawner() {
	runtime.LockOSThread()
	for f := range a.spawn {
		f()
	}
}

func (a *Agent) logf(format string, args ...any) {
	fmt.Fprintf(a.o.Log, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}

// follow keeps a connection with the head.
func (a *Agent) follow(ctx context.Context) {
	said := make([]string, len(a.o.Head))
	for n := 0; ctx.Err() == nil; n++ {
		err := a.attend(ctx, a.o.Head[n%len(a.o.Head)])
		if ctx.Err() != nil {
			return
		}
		if at := n % len(a.o.Head); said[at] != err.Error() { // of several heads that do not lead, once
			said[at] = err.Error()
			a.logf("head %s: %v", a.o.Head[at], err)
		}
		if len(a.o.Head) == 1 && (a.met.Load() || n > 30) { // else it may still come up
			a.reviveHeads()
		}
		wait := 100 * time.Millisecond
		if len(a.o.Head) > 1 {
			wait = 20 * time.Millisecond // another may lead already
		}
		if errors.Is(err, errRefused) {
			wait = 2 * time.Second
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// watchHeads starts heads of this machine again that have ended, also while another leads.
func (a *Agent) watchHeads(ctx context.Context) {
	tick := time.NewTicker(headsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if a.met.Load() { // else they may still come up
			a.reviveHeads()
		}
	}
}

// headsEvery is how often an agent looks for heads of its machine that have ended.
const headsEvery = 500 * time.Millisecond

// reviveHeads starts the heads of this machine again that have ended. Of several agents that do so at once,
// one's lives.
func (a *Agent) reviveHeads() {
	for _, l := range a.o.Local {
		if machine.Holder(l.Dir) > 0 || !machine.Exists(l.Dir) ||
			machine.Exists(filepath.Join(l.Dir, control.DownFile)) {
			continue
		}
		command := append(slices.Clone(a.o.Command), control.HeadArgs(l.Dir, l.Listen)...)
		pid, err := machine.Detached(l.Dir, command...)
		a.logf("the head in %s has ended; started again as pid %d: %v", l.Dir, pid, err)
		select { // it takes as long until it holds its lock
		case <-a.done:
		case <-time.After(500 * time.Millisecond):
		}
	}
}

var errRefused = errors.New("the head refuses this agent")

// attend serves one connection with the head until it ends.
func (a *Agent) attend(ctx context.Context, addr string) error {
	dial, cancel := context.WithTimeout(ctx, dialLimit)
	c, err := control.Dial(dial, addr, a.id, "/v1/agent")
	cancel()
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if err := c.Send(control.Message{Kind: control.Hello, Info: a.info(), Procs: a.list()}); err != nil {
		return err
	}
	m, err := c.Receive(10 * time.Second)
	switch {
	case err != nil:
		return err
	case m.Kind != control.Welcome || m.Text != "":
		return fmt.Errorf("%w: %s", errRefused, m.Text)
	case m.Epoch < a.term:
		return fmt.Errorf("it leads in term %d, and another has in term %d since", m.Epoch, a.term)
	}
	a.term = m.Epoch
	a.hear(m)
	a.logf("head %s: joined as %s", addr, a.name)
	if err := a.open(c, m.Procs); err != nil {
		return err
	}
	a.met.Store(true)
	defer a.shut(c)
	return a.converse(c)
}

// dialLimit is how long a head may take to answer: one on a lost host never does, and another leads by then.
const dialLimit = 2 * time.Second

// open makes c the way to the head and sends what waited for one, after the output that the head has not got:
// wrote says how far it has come.
func (a *Agent) open(c *control.Conn, wrote []control.Proc) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.unheard(wrote) {
		if err := c.Send(m); err != nil {
			return err
		}
	}
	for len(a.late) > 0 {
		if err := c.Send(a.late[0]); err != nil {
			return err
		}
		a.late = a.late[1:]
	}
	for _, p := range a.procs {
		if p.widths == nil {
			continue
		}
		if err := c.Send(*p.widths); err != nil {
			return err
		}
	}
	a.head = c
	return nil
}

func (a *Agent) shut(c *control.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.head == c {
		a.head = nil
	}
}

// tell sends the head a message, or keeps it for the head that comes.
func (a *Agent) tell(m control.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.Kind == control.Output {
		a.number(&m)
	}
	if a.head != nil && a.head.Send(m) == nil {
		return
	}
	a.head = nil
	if len(a.late) < keepLate {
		a.late = append(a.late, m)
	} else {
		a.lost++
	}
}

// converse beats and hears until the head is silent or gone.
func (a *Agent) converse(c *control.Conn) error {
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		beat := time.NewTicker(control.Beats)
		defer beat.Stop()
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			case <-beat.C:
				m := control.Message{Kind: control.Beat}
				if n%50 == 0 {
					m.Info = a.info()
				}
				if n%600 == 0 && time.Until(a.id.Expiry()) < trust.NodeLife/2 {
					m.Kind = control.Renew
				}
				if c.Send(m) != nil {
					c.Close()
					return
				}
			}
		}
	}()
	for {
		m, err := c.Listen(control.HeadSilence)
		if err != nil {
			return errors.New(control.Why(err))
		}
		a.hear(m)
	}
}

// hear does what the head says.
func (a *Agent) hear(m control.Message) {
	switch m.Kind {
	case control.Welcome, control.Revoke:
		if err := a.id.Revoke(m.Revoked); err != nil {
			a.logf("the list of revoked certificates: %v", err)
		}
	case control.Renewed:
		if err := a.renewed(m.Text); err != nil {
			a.logf("the new certificate: %v", err)
		}
	case control.Order:
		a.start(m)
	case control.Leave, control.Kill, control.Signal:
		a.end(m)
	case control.Peers, control.Placed, control.Ready, control.Exited:
		if p := a.find(m.Job, m.Proc); p != nil {
			p.pass(m)
		}
	case control.Hosts, control.Change:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.known.Hosts, a.known.Dirs = m.Changed(a.known.Hosts), m.Dirs
		for _, p := range a.procs {
			p.pass(m)
		}
	case control.AskWhy:
		go a.because(m)
	case control.Probe:
		go a.probe(m)
	case control.Forget:
		a.mu.Lock()
		maps.DeleteFunc(a.over, func(k key, _ control.Proc) bool { return k.job == m.Job })
		maps.DeleteFunc(a.tails, func(k key, _ *tail) bool { return k.job == m.Job })
		a.mu.Unlock()
		if m.Job != "" && filepath.IsLocal(m.Job) {
			_ = os.RemoveAll(filepath.Join(a.o.Dir, "jobs", m.Job)) // copies of what the user has
		}
	case control.Quit:
		select {
		case a.quit <- m.Code == 1:
		default:
		}
	}
}

// keeps reports whether a directory is one that a job of the cluster keeps files in.
func (a *Agent) keeps(dir string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.known.Dirs, dir)
}

func (a *Agent) find(job string, n int) *proc {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.procs[key{job, n}]
}

// list says which processes there are, in order.
func (a *Agent) list() (out []control.Proc) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.procs {
		out = append(out, p.Proc)
	}
	out = slices.AppendSeq(out, maps.Values(a.over))
	slices.SortFunc(out, func(x, y control.Proc) int {
		if x.Job != y.Job {
			return slices.Compare([]string{x.Job}, []string{y.Job})
		}
		return x.Proc - y.Proc
	})
	return out
}

// info is what this host is.
func (a *Agent) info() *control.Info {
	return &control.Info{Name: a.name, Addr: a.o.Addr, Binary: a.o.Binary, Version: a.o.Version,
		Cores:  runtime.NumCPU(),
		Memory: machine.MemoryLimit("/"), Disk: machine.FreeDisk(a.o.Dir), Pid: os.Getpid(),
		Probe: a.ln.Addr().String(), Clock: time.Now().UnixNano()}
}

// endAll kills every process and waits for their ends.
func (a *Agent) endAll() {
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
