package decide

import (
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// way is the connection with the head.
type way struct {
	conn  int64    // that is there, or is dialed; 0 for none
	open  bool     // its head has welcomed this agent
	tried int      // how many connections have failed or ended
	said  []string // what was noted of each head last
	retry int64    // timer of the next try
	due   bool     // a try waits for processes that are being started
	met   bool     // a head was met before
	term  int64    // of the newest head that was met
}

// How long an agent waits before it dials again.
const (
	pauseOne     = 100 * time.Millisecond // the only head
	pauseNext    = 20 * time.Millisecond  // another may lead already
	pauseRefused = 2 * time.Second
)

// patience is how often the only head may fail that was never met, until it counts as ended: it may still come up.
const patience = 30

// pause is the time before the next dial. It is short where there is another head to try.
func (a *Agent) pause() time.Duration {
	if len(a.o.Heads) > 1 {
		return pauseNext
	}
	return pauseOne
}

// dial asks for a connection with the next head. A head that connects is told of all processes: one that is
// being started is waited for.
func (a *Agent) dial() {
	a.way.retry = 0
	if a.way.due = a.starting(); a.way.due {
		return
	}
	a.way.conn = a.number()
	a.say(Dial{a.way.conn, a.way.tried % len(a.o.Heads)})
}

// apply tries again where the connection that counts has ended. A host that was removed while its agent was
// away has heard of it from nobody: its agent ends, as others do that are told.
func (in Gone) apply(a *Agent) {
	switch {
	case in.Conn != a.way.conn:
	case in.Barred:
		a.note("head %s: the host was removed from the cluster, and its certificate revoked",
			a.o.Heads[a.way.tried%len(a.o.Heads)])
		a.way.conn, a.way.open = 0, false
		a.say(Quit{})
	default:
		a.fail(in.Why, a.pause())
	}
}

// fail is the end of a connection, or of the try to have one.
func (a *Agent) fail(why string, pause time.Duration) {
	w := &a.way
	at := w.tried % len(a.o.Heads)
	if w.said[at] != why { // of several heads that do not lead, once
		w.said[at] = why
		a.note("head %s: %s", a.o.Heads[at], why)
	}
	w.conn, w.open = 0, false
	revive := len(a.o.Heads) == 1 && a.o.Local > 0 && pause != pauseRefused && (w.met || w.tried > patience)
	w.tried++
	if revive {
		a.say(Revive{})
		return
	}
	w.retry = a.wake(pause)
}

// apply does what a head says, on the connection that counts.
func (in Heard) apply(a *Agent) {
	w := &a.way
	switch {
	case in.Conn != w.conn:
	case w.open:
		a.hear(in.M)
	case in.M.Kind != control.Welcome || in.M.Text != "":
		a.say(Close{w.conn})
		a.fail("the head refuses this agent: "+in.M.Text, pauseRefused)
	case in.M.Epoch < w.term:
		a.say(Close{w.conn})
		why := fmt.Sprintf("it leads in term %d, and another has in term %d since", in.M.Epoch, w.term)
		a.fail(why, a.pause())
	default:
		w.term, w.open, w.met = in.M.Epoch, true, true
		a.say(Revoke{in.M.Revoked})
		a.note("head %s: joined as %s", a.o.Heads[w.tried%len(a.o.Heads)], a.o.Name)
		a.catchUp(in.M.Procs)
	}
}

// catchUp sends what waited for a head, after the output that this one has not got: wrote says how far it has come.
func (a *Agent) catchUp(wrote []control.Proc) {
	for _, m := range a.unheard(wrote) {
		a.say(Send{a.way.conn, m})
	}
	for _, m := range a.late {
		a.say(Send{a.way.conn, m})
	}
	a.late = nil
	for _, k := range sorted(a.procs) {
		if w := a.procs[k].widths; w != nil {
			a.say(Send{a.way.conn, *w})
		}
	}
}

// tell sends the head a message, or keeps it for the head that comes.
func (a *Agent) tell(m control.Message) {
	if m.Kind == control.Output {
		a.keep(&m)
	}
	if a.way.open {
		a.say(Send{a.way.conn, m})
		return
	}
	a.wait(m)
}

// wait keeps a message for the time when a head is there again; beyond a limit they are only counted.
func (a *Agent) wait(m control.Message) {
	if len(a.late) < keepLate {
		a.late = append(a.late, m)
	} else {
		a.lost++
	}
}

// apply keeps a message that a connection did not take, and gives that up.
func (in Unsent) apply(a *Agent) {
	if in.M.Kind != control.Hello {
		a.wait(in.M)
	}
	if in.Conn == a.way.conn {
		a.say(Close{in.Conn})
		a.fail("the connection ended", a.pause())
	}
}

// hear does what the head says that leads.
func (a *Agent) hear(m control.Message) {
	switch m.Kind {
	case control.Welcome, control.Revoke:
		a.say(Revoke{m.Revoked})
	case control.Renewed:
		a.say(Renewed{m.Text})
	case control.Order, control.Leave, control.Kill, control.Signal, control.AskWhy, control.Read,
		control.Peers, control.Placed, control.Ready, control.Exited, control.NoRoom:
		a.toProc(m)
	case control.Hosts, control.Change:
		a.hosts = m.Changed(a.hosts)
		a.say(Dirs{m.Dirs, m.Users})
		for _, k := range sorted(a.procs) {
			a.pass(a.procs[k], m)
		}
	case control.Probe:
		a.say(Measure{m})
	case control.Forget:
		a.forget(m.Job)
	case control.Quit:
		a.say(Quit{m.Code == 1})
	}
}

// forget drops what is known of a job that is over.
func (a *Agent) forget(job string) {
	for _, k := range sorted(a.over) {
		if k.job == job {
			delete(a.over, k)
		}
	}
	for _, k := range sorted(a.tails) {
		if k.job == job {
			delete(a.tails, k)
		}
	}
	a.say(Clear{job})
}
