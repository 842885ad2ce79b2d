package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/topology/machine"
)

// step hands an event to the state machine (agent/decide) and carries out the effects that it returns.
func (a *Agent) step(in decide.Input) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for todo := []decide.Input{in}; len(todo) > 0 && !a.ending; todo = todo[1:] {
		for _, e := range a.d.Step(todo[0]) {
			if s, ok := e.(decide.Send); ok && a.send(s) != nil {
				todo = append(todo, decide.Unsent(s))
			}
			a.carryOut(e)
		}
	}
}

// beside runs something that takes long beside the steps; the lock is held.
func (a *Agent) beside(do func()) { a.begun.Go(do) }

// carryOut does what was decided, but for what is sent; the lock is held.
func (a *Agent) carryOut(e decide.Effect) {
	switch e := e.(type) {
	case decide.Dial:
		a.beside(func() {
			err := a.attend(e)
			a.step(decide.Gone{Conn: e.Conn, Why: err.Error(), Barred: trust.Barred(err)})
		})
	case decide.Close:
		if c := a.ways[e.Conn]; c != nil {
			c.Close()
		}
	case decide.Wake:
		time.AfterFunc(e.After, func() { a.step(decide.Elapsed{Timer: e.Timer}) })
	case decide.Revive:
		a.beside(func() {
			a.reviveHeads()
			a.step(decide.Revived{})
		})
	case decide.Launch:
		a.beside(func() { a.start(e) })
	case decide.Measure:
		go a.probe(e.M)
	case decide.Revoke:
		if err := a.id.Revoke(e.Serials); err != nil {
			a.logf("the list of revoked certificates: %v", err)
		}
		a.shareIdentity()
	case decide.Renewed:
		if err := a.renewed(e.Cert); err != nil {
			a.logf("the new certificate: %v", err)
		}
		a.shareIdentity()
	case decide.Dirs:
		a.dirs = map[string]string{}
		for i, d := range e.Dirs {
			a.dirs[d] = ""
			if i < len(e.Users) {
				a.dirs[d] = e.Users[i]
			}
		}
	case decide.Clear:
		if e.Job != "" && filepath.IsLocal(e.Job) {
			delete(a.owners, e.Job)
			_ = os.RemoveAll(filepath.Join(a.jobs, e.Job)) // copies of what the user has
		}
	case decide.Quit:
		select {
		case a.quit <- e.Remove:
		default:
		}
	case decide.Note:
		a.logf("%s", e.Text)
	default:
		a.atProc(e)
	}
}

// atProc does to a process what was decided; the lock is held.
func (a *Agent) atProc(e decide.Effect) {
	at := func(life int64, do func(p *proc)) {
		if p := a.procs[life]; p != nil {
			do(p)
		}
	}
	switch e := e.(type) {
	case decide.Pass:
		at(e.Life, func(p *proc) { p.pass(e.M) })
	case decide.Kill:
		at(e.Life, (*proc).kill)
	case decide.Signal:
		at(e.Life, func(p *proc) {
			s := syscall.Signal(e.Code)
			if s == syscall.SIGTERM {
				s = machine.EndSignal()
			}
			_ = p.cmd.Process.Signal(s) // it may have ended
		})
	case decide.Finish:
		at(e.Life, (*proc).finish)
	case decide.Ask:
		switch p := a.procs[e.Life]; {
		case p == nil && e.M.Kind == control.Read && e.M.Spec != nil:
			go a.tell(e.M.Spec, e.M)
		case p == nil:
		case e.M.Kind == control.Read:
			go a.tell(p.spec, e.M)
		default:
			go a.because(p, e.M)
		}
	}
}

var errNoWay = errors.New("there is no such connection")

// send sends the head a message; the lock is held.
func (a *Agent) send(e decide.Send) error {
	c := a.ways[e.Conn]
	if c == nil {
		return errNoWay
	}
	if e.M.Kind == control.Hello {
		e.M.Info = a.info()
	}
	return c.Send(e.M)
}

// attend serves one connection with a head until it ends, and says why it has.
func (a *Agent) attend(e decide.Dial) error {
	dial, cancel := context.WithTimeout(a.ctx, dialLimit)
	c, err := control.Dial(dial, a.o.Head[e.Head], a.id, "/v1/agent")
	cancel()
	if err != nil {
		return err
	}
	defer c.Close()
	a.readdress(c.Local())
	defer context.AfterFunc(a.ctx, func() { c.Close() })()
	a.mu.Lock()
	a.ways[e.Conn] = c
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.ways, e.Conn)
		a.mu.Unlock()
	}()
	a.step(decide.Dialed{Conn: e.Conn})
	m, err := c.Receive(10 * time.Second)
	if err != nil {
		return err
	}
	a.step(decide.Heard{Conn: e.Conn, M: m})
	return a.converse(e.Conn, c, min(time.Duration(m.At), 2*control.Beats))
}

// dialLimit is how long a head may take to answer: one on a lost host never does, and another leads by then.
const dialLimit = 2 * time.Second

// converse beats, so much later than else, and hears until the head is silent or gone.
func (a *Agent) converse(conn int64, c *control.Conn, more time.Duration) error {
	stop := make(chan struct{})
	defer close(stop)
	go a.beat(c, control.Beats+more, stop)
	for {
		m, err := c.Listen(control.HeadSilence + 10*more)
		if err != nil {
			return errors.New(control.Why(err))
		}
		if m.Kind != control.Beat {
			a.step(decide.Heard{Conn: conn, M: m})
		}
	}
}

// beat says again and again that this agent lives.
func (a *Agent) beat(c *control.Conn, every time.Duration, stop <-chan struct{}) {
	beat := time.NewTicker(every)
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
			if n%50 == 1 && time.Until(a.id.Expiry()) < trust.NodeLife/2 {
				m.Kind = control.Renew
			}
			if c.Send(m) != nil {
				c.Close()
				return
			}
		}
	}
}

// reviveHeads starts the heads of this machine again that have ended. Of several agents that do so at once,
// one's lives.
func (a *Agent) reviveHeads() {
	for _, l := range a.o.Local {
		if a.ctx.Err() != nil {
			return
		}
		if machine.Holder(l.Dir) > 0 || !machine.Exists(l.Dir) ||
			machine.Exists(filepath.Join(l.Dir, control.DownFile)) {
			continue
		}
		command := append(slices.Clone(a.o.Command), control.HeadArgs(l.Dir, l.Listen)...)
		pid, err := machine.Detached(l.Dir, command...)
		a.logf("the head in %s has ended; started again as pid %d: %v", l.Dir, pid, err)
		_ = machine.Pause(a.ctx, 500*time.Millisecond) // it takes as long until it holds its lock
	}
}

// keeps reports whether a directory is one that a job of the cluster keeps files in.
func (a *Agent) keeps(dir string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.dirs[dir]
	return ok
}

// whose is the user of the system that files of a directory of jobs are written as.
func (a *Agent) whose(dir string) (uid, gid int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if name := a.dirs[dir]; name != "" {
		return asWhom(name, root())
	}
	return 0, 0
}

// listenTo hears a process until its end. Time in which this agent did not run itself is not the process's silence.
func (a *Agent) listenTo(p *proc) {
	for {
		m, err := p.talk.Hear(func(q control.Quiet) error {
			if q.For >= decide.LeaseStopped {
				a.step(silence(p, q.For))
			}
			return nil
		})
		var u *control.Unbounded
		if errors.As(err, &u) { // no process of ours says so, but one that a job has started may
			continue
		}
		if err != nil {
			return
		}
		a.step(decide.Said{Life: p.life, M: m})
	}
}
