// Package fleet is the run.Fleet of a cluster: a process of a job asks its agent to start the others,
// and reaches them by edges of TLS.
package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/depot"
	"github.com/lfactor/lfactor/actors/cluster/edge"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/actors/host/links"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/configs/exit"
)

// Fleet is where the processes of this process's job live.
type Fleet struct {
	talk *control.Conn
	self control.Message // the agent's welcome: job, number, generation, address, ports
	id   *trust.Identity
	run  [16]byte

	mu      sync.Mutex
	changed *sync.Cond
	peers   map[int]control.Peer
	hosts   map[string]string // that are connected, with the addresses of their agents
	depots  map[string]*depot.Client
	procs   map[int]*proc
	ends    time.Time               // when a host of the job is taken back, zero for never
	asked   int64                   // requests for a process
	edges   map[*edge.Conn]struct{} // that were accepted
	said    sync.Map                // addresses of which the network's losses were
}

// FromEnv is the fleet of a process that an agent has started, nil for any other process.
func FromEnv() (*Fleet, error) {
	fd, err := strconv.Atoi(os.Getenv(control.EnvTalk))
	if err != nil {
		return nil, nil
	}
	syscall.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "agent")
	c, err := net.FileConn(file)
	file.Close()
	if err != nil {
		return nil, fmt.Errorf("%s=%d is no connection with an agent: %w", control.EnvTalk, fd, err)
	}
	f := &Fleet{talk: control.NewConn(c, nil), procs: map[int]*proc{}, depots: map[string]*depot.Client{},
		edges: map[*edge.Conn]struct{}{}}
	f.changed = sync.NewCond(&f.mu)
	var early []control.Message
	for f.self.Kind != control.Welcome {
		if f.self, err = f.talk.Receive(10 * time.Second); err != nil {
			return nil, fmt.Errorf("the agent's welcome: %w", err)
		}
		early = append(early, f.self)
	}
	f.peers, f.hosts = f.self.Peers, f.self.Hosts
	for _, p := range f.self.Procs {
		f.procs[p.Proc] = &proc{f: f, n: p.Proc, gen: p.Gen, ready: p.Ready || p.Over, over: p.Text,
			code: p.Code, name: fmt.Sprintf("pid %d on %s", p.Pid, p.Node)}
	}
	f.run = RunID(f.self.Job)
	if f.id, err = trust.Load(f.self.Text, nil); err != nil {
		return nil, err
	}
	for _, m := range early[:len(early)-1] {
		f.take(m)
	}
	go f.hear()
	go f.beat()
	return f, nil
}

// beat tells the agent that this process lives, as long as it does.
func (f *Fleet) beat() {
	for tick := time.NewTicker(control.Beats); ; <-tick.C {
		if f.talk.Send(control.Message{Kind: control.Beat}) != nil {
			return // hear ends this process
		}
	}
}

// RunID names a job on its edges.
func RunID(job string) [16]byte {
	sum := sha256.Sum256([]byte("lfactor job " + job))
	return [16]byte(sum[:16])
}

// hear takes in what the agent says. Its end is this process's: nobody looks after it any more, and the
// head starts another in its place.
func (f *Fleet) hear() {
	for {
		m, err := f.talk.Receive(0)
		if err != nil {
			fmt.Fprintln(os.Stderr, "error: the agent of this host has ended, and this process ends with it")
			os.Exit(exit.Failed)
		}
		f.take(m)
	}
}

// take takes a message of the head or of an agent about hosts and processes. News of a process
// count only for the generation, or the request, that is awaited.
func (f *Fleet) take(m control.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed.Broadcast()
	if m.Kind == control.Hosts || m.Kind == control.Change {
		f.hosts = m.Changed(f.hosts)
		return
	}
	if m.Kind == control.Signal {
		f.ends = time.Now().Add(time.Duration(m.At))
		return
	}
	if m.Kind == control.Peers {
		f.peers = m.Peers
		for c := range f.edges {
			if p, ok := f.peers[int(c.From.Proc)]; ok && uint64(p.Gen) > c.From.Gen {
				c.Conn.NetConn().Close() // its process has a successor: it is fenced
				delete(f.edges, c)
			}
		}
		return
	}
	p := f.procs[m.Peer]
	if p == nil || p.gen != 0 && m.Gen != p.gen || p.gen == 0 && m.At != p.ask {
		return
	}
	switch m.Kind {
	case control.Placed:
		p.gen, p.name = m.Gen, m.Text
	case control.Ready:
		p.ready = true
	case control.NoRoom:
		p.none = m.Text
	case control.Exited:
		p.gen, p.over, p.code = m.Gen, m.Text, m.Code
	}
}

// proc is a process that this one has asked for.
type proc struct {
	f     *Fleet
	n     int
	gen   int
	ask   int64 // the number of the request that started it
	name  string
	ready bool
	over  string // how it ended
	none  string // why no host takes it any more
	code  int    // with which exit code
}

// Inherited implements run.Heirs.
func (f *Fleet) Inherited() (ended int, others map[int]run.Inherited) {
	f.mu.Lock()
	defer f.mu.Unlock()
	others = map[int]run.Inherited{}
	for _, p := range f.self.Procs {
		others[p.Proc] = run.Inherited{Process: f.procs[p.Proc], Env: p.Env, Ended: p.Over}
	}
	return f.self.Code, others
}

// On implements run.Heirs.
func (f *Fleet) On() map[int]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	on := map[int]string{}
	for n, p := range f.peers {
		on[n] = p.Node
	}
	on[f.self.Proc] = f.self.Node
	return on
}

var _ run.Heirs = (*Fleet)(nil)

// startLimit is how long the cluster may take to start a process: also one whose host was just lost,
// and whose head is starting again.
const startLimit = 60 * time.Second

// Start implements run.Fleet.
func (f *Fleet) Start(n int, env []string) (run.Process, error) {
	p := &proc{f: f, n: n}
	f.mu.Lock()
	f.asked++
	p.ask = int64(f.self.Gen)<<32 | f.asked // one that leads after this one has a greater Gen
	f.procs[n] = p
	f.mu.Unlock()
	started := func() bool { return p.name != "" || p.over != "" || p.none != "" }
	m := control.Message{Kind: control.Start, Peer: n, Env: env, At: p.ask}
	if err := f.repeat(m, startLimit, started); err != nil {
		return nil, fmt.Errorf("process %d: the agent does not take the order: %w", n, err)
	}
	if !f.wait(0, started) {
		return nil, fmt.Errorf("process %d: the cluster has not started it within %v; `lfactor cluster "+
			"status` shows the hosts", n, startLimit)
	}
	if p.none != "" {
		return nil, &run.NoRoomError{Proc: n, Why: p.none}
	}
	if p.name == "" {
		return nil, exit.With(fmt.Errorf("process %d: %s", n, p.over), exit.Unreachable)
	}
	return p, nil
}

// askAgain is the pause before a request is repeated whose effect has not shown: a head that has just died
// may have taken it along. It does what it asks for once.
const askAgain = 2 * time.Second

// repeat sends the head a request until ok, which is asked with the lock held, or for the limit.
func (f *Fleet) repeat(m control.Message, limit time.Duration, ok func() bool) error {
	for until := time.Now().Add(limit); ; {
		if err := f.talk.Send(m); err != nil {
			return err
		}
		if f.wait(min(askAgain, time.Until(until)), ok) || time.Now().After(until) {
			return nil
		}
	}
}

// wait waits until ok, which is asked with the lock held, or for the limit.
func (f *Fleet) wait(limit time.Duration, ok func() bool) bool {
	late := false
	timer := time.AfterFunc(limit, func() {
		f.mu.Lock()
		late = true
		f.mu.Unlock()
		f.changed.Broadcast()
	})
	defer timer.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !ok() && !late {
		f.changed.Wait()
	}
	return ok()
}

// Slow implements run.Noter.
func (f *Fleet) Slow(proc int, text string) {
	_ = f.talk.Send(control.Message{Kind: control.Slow, Peer: proc, Text: text}) // the run says it as well
}

// SlowWay implements run.Noter.
func (f *Fleet) SlowWay(proc int, text string) {
	_ = f.talk.Send(control.Message{Kind: control.Slow, Peer: proc, Text: text, Code: 1}) // as above
}

// Hung implements run.Noter. The request is repeated as long as the process is what it was: of this one, as
// long as it lives.
func (f *Fleet) Hung(proc int, text string) {
	m := control.Message{Kind: control.Hung, Peer: proc, Text: text}
	f.mu.Lock()
	m.Gen = f.self.Gen
	p := f.procs[proc]
	if proc > 0 && p != nil {
		m.At = p.ask
	}
	f.mu.Unlock()
	go func() {
		_ = f.repeat(m, forever, func() bool { return proc > 0 && f.procs[proc] != p }) // the run says it as well
	}()
}

// Ends implements run.Noter.
func (f *Fleet) Ends(within time.Duration) time.Duration {
	f.wait(within, func() bool { return !f.ends.IsZero() })
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(f.ends)
}

// Steps implements run.Noter.
func (f *Fleet) Steps() { _ = f.talk.Send(control.Message{Kind: control.Ready}) } // it counts as none then

var _ run.Noter = (*Fleet)(nil)

// Widths implements run.Sizer.
func (f *Fleet) Widths(all []run.Width) {
	m := control.Message{Kind: control.Widths}
	for _, w := range all {
		m.Widths = append(m.Widths, control.Width(w))
	}
	_ = f.talk.Send(m) // without an agent this process is at its end
}

var _ run.Sizer = (*Fleet)(nil)

// Close implements run.Fleet.
func (f *Fleet) Close() {}

// Name implements run.Process.
func (p *proc) Name() string { return p.name }

// forever is longer than any run.
const forever = 100 * 365 * 24 * time.Hour

// Ready implements run.Process.
func (p *proc) Ready() error {
	p.f.wait(forever, func() bool { return p.ready || p.over != "" })
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if !p.ready {
		return io.EOF
	}
	return nil
}

// Wait implements run.Process.
func (p *proc) Wait() error {
	p.f.wait(forever, func() bool { return p.over != "" })
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	if p.code == 0 {
		return nil
	}
	return errors.New(p.over)
}

// Leave implements run.Process.
func (p *proc) Leave() { p.send(control.Leave) }

// Kill implements run.Process.
func (p *proc) Kill() { p.send(control.Kill) }

// send asks for the end of the process, and again until it has come. It does not wait for that.
func (p *proc) send(k control.Kind) {
	m := control.Message{Kind: k, Peer: p.n, At: p.ask}
	over := func() bool { return p.over != "" || p.f.procs[p.n] != p }
	if p.f.talk.Send(m) != nil {
		return // without an agent this process is at its end
	}
	go func() {
		if !p.f.wait(askAgain, over) {
			_ = p.f.repeat(m, forever, over) // as above
		}
	}()
}

// Transport implements run.Fleet.
func (f *Fleet) Transport(n int) (links.Transport, error) {
	ln, err := f.listen()
	if err != nil {
		return nil, exit.With(fmt.Errorf("no port for edges on %s: %w", f.self.Addr, err), exit.Unreachable)
	}
	if err := f.talk.Send(control.Message{Kind: control.Listening, Addr: ln.Addr().String()}); err != nil {
		ln.Close()
		return nil, err
	}
	return &transport{f: f, n: n, Listener: ln}, nil
}

// listen takes the first port that is free.
func (f *Fleet) listen() (ln *edge.Listener, err error) {
	o := edge.Options{Admit: f.admit, Log: func(text string) {
		fmt.Fprintln(os.Stderr, "warning: edge:", text)
	}}
	for port := f.self.Ports[0]; port <= f.self.Ports[1]; port++ {
		if ln, err = edge.Listen(net.JoinHostPort(f.self.Addr, strconv.Itoa(port)), f.id, o); err == nil {
			return ln, nil
		}
	}
	return nil, err
}

// admit judges who wants to open an edge.
func (f *Fleet) admit(g edge.Greeting, who trust.Subject) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, known := f.peers[int(g.Proc)]
	switch {
	case g.Run != f.run:
		return errors.New("the process belongs to another job")
	case int(g.To) != f.self.Proc:
		return fmt.Errorf("process %d is meant, and this is process %d", g.To, f.self.Proc)
	case known && g.Gen < uint64(p.Gen):
		return fmt.Errorf("process %d was replaced: its generation is %d, and %d is of old", g.Proc, p.Gen, g.Gen)
	case known && g.Gen == uint64(p.Gen) && who.Name != p.Node:
		return fmt.Errorf("process %d is on host %s, and host %s says it is", g.Proc, p.Node, who.Name)
	}
	return nil
}

// transport is the links.Transport of one process.
type transport struct {
	f      *Fleet
	n      int
	closed bool // under f.mu
	*edge.Listener
}

// Close ends the listener, and the wait for processes of which nobody knows where they take edges: at the
// end of a run one may be gone for good.
func (t *transport) Close() error {
	t.f.mu.Lock()
	t.closed = true
	t.f.mu.Unlock()
	t.f.changed.Broadcast()
	return t.Listener.Close()
}

// dialLimit is how long a process is waited for that does not take edges yet: it loads its weights before.
const dialLimit = 60 * time.Second

// redial is the pause before a process is dialled again that has not moved meanwhile.
const redial = 250 * time.Millisecond

// refusedFor is how long it may take to hear of a process's new address: until then its old one may be another's.
const refusedFor = 5 * time.Second

// Way names the kind of connection for people.
func (t *transport) Way() string { return "TLS 1.3 from " + t.f.self.Node }

// Dial implements links.Transport.
func (t *transport) Dial(n int) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), dialLimit)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		var p control.Peer
		deadline, _ := ctx.Deadline()
		if !t.f.wait(time.Until(deadline), func() bool { p = t.f.peers[n]; return p.Addr != "" || t.closed }) ||
			p.Addr == "" {
			break
		}
		moved := func() bool { return t.f.peers[n] != p }
		c, err := t.dial(ctx, n, p, moved)
		if err == nil {
			return c, nil
		}
		last = err
		var refused *edge.RefusedError
		if errors.As(err, &refused) && !t.f.wait(refusedFor, moved) {
			return nil, err
		}
		t.f.wait(redial, moved)
	}
	return nil, fmt.Errorf("process %d takes no edge within %v: %w", n, dialLimit, errors.Join(last, ctx.Err()))
}

// dial opens an edge to a process, unless it has moved meanwhile: a host that is lost answers nothing.
func (t *transport) dial(ctx context.Context, n int, p control.Peer, moved func() bool) (net.Conn, error) {
	ctx, abort := context.WithCancel(ctx)
	over := false // under f.mu
	go func() {
		t.f.wait(dialLimit, func() bool { return over || moved() })
		abort()
	}()
	c, err := edge.Dial(ctx, p.Addr, p.Node, t.f.id,
		edge.Greeting{Run: t.f.run, Proc: int32(t.n), To: int32(n), Gen: uint64(t.f.self.Gen)})
	t.f.mu.Lock()
	over = true
	t.f.mu.Unlock()
	t.f.changed.Broadcast()
	if err != nil {
		return nil, err
	}
	c.Say(func(text string) { t.f.once(p.Addr, text) })
	return c, nil
}

// once says of a process's address what its first edge there says: the others share its way.
func (f *Fleet) once(addr, text string) {
	if _, said := f.said.LoadOrStore(addr, true); !said {
		fmt.Fprintln(os.Stderr, "warning: edge:", text)
	}
}

// Accept implements links.Transport.
func (t *transport) Accept() (net.Conn, error) {
	c, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	t.f.mu.Lock()
	defer t.f.mu.Unlock()
	if e, ok := c.(*edge.Conn); ok {
		t.f.edges[e] = struct{}{}
	}
	return c, nil
}
