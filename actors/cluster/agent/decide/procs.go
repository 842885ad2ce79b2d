package decide

import (
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// proc is a process of a job.
type proc struct {
	control.Proc
	life     int64
	starting bool
	// what the head has said while it was started, or since its successor was ordered, whose order is the first
	waits []control.Message
	// what it has said of the replicas that it can do with, nil for nothing: each head is told
	widths *control.Message
	beats  bool   // it has said that it lives
	hung   string // why it was killed for its silence, "" if it was not
	asked  bool   // to save and to end
}

// A process says something at each control.Beats, and its agent watches it by that: also the one that leads
// its job, which watches the others and which nobody else does. What runs, but gets no processor or is long
// in one call, has more time than what is stopped or waits for a device.
const (
	LeaseStopped = 2 * time.Second
	LeaseRunning = 10 * time.Second
)

// starting reports whether a process is being started, or is waited for by its successor.
func (a *Agent) starting() bool {
	for _, p := range a.procs { //lfvet:order any of them
		if p.starting || len(p.waits) > 0 {
			return true
		}
	}
	return false
}

// toProc does what the head says of a process.
func (a *Agent) toProc(m control.Message) {
	p := a.procs[key{m.Job, m.Proc}]
	switch {
	case p == nil && m.Kind == control.Order:
		a.launch(m)
	case p == nil && m.Kind == control.Read: // of a job that is over
		a.say(Ask{0, m})
	case p == nil:
	case p.starting || len(p.waits) > 0:
		p.waits = append(p.waits, m)
	case m.Kind == control.Order: // it is out of the job already
		p.waits = append(p.waits, m)
		a.say(Kill{p.life})
	case m.Kind == control.AskWhy, m.Kind == control.Read:
		a.say(Ask{p.life, m})
	case m.Kind == control.Leave, m.Kind == control.Kill, m.Kind == control.Signal:
		a.end(p, m)
	default:
		a.pass(p, m)
	}
}

// launch starts a process that the head placed here. It is entered before it runs, so that orders which follow find it.
func (a *Agent) launch(m control.Message) {
	p := &proc{Proc: control.Proc{Job: m.Job, Proc: m.Proc, Gen: m.Gen}, life: a.number(), starting: true}
	a.procs[key{m.Job, m.Proc}] = p
	a.say(Launch{p.life, m, a.hosts})
}

// end does what the head says of a process's end.
func (a *Agent) end(p *proc, m control.Message) {
	switch {
	case m.Gen != 0 && m.Gen != p.Gen: // it is said of another that had its number
	case m.Kind == control.Kill:
		a.say(Kill{p.life})
	case m.Kind == control.Signal && p.asked: // a second signal would end it before it has saved
		a.note("job %s process %d: was asked to end already", p.Job, p.Proc.Proc)
	case m.Kind == control.Signal:
		p.asked = true
		if m.At > 0 {
			a.pass(p, m) // it says what is lost if that is too short
		}
		a.say(Signal{p.life, m.Code})
	default:
		a.say(Finish{p.life})
	}
}

// pass hands a message to a process when it is there.
func (a *Agent) pass(p *proc, m control.Message) {
	if p.starting {
		p.waits = append(p.waits, m)
		return
	}
	a.say(Pass{p.life, m})
}

// goOn does what has waited.
func (a *Agent) goOn(p *proc) {
	waits := p.waits
	p.waits = nil
	for _, m := range waits {
		if m.Kind == control.Hosts || m.Kind == control.Change {
			if now := a.procs[key{p.Job, p.Proc.Proc}]; now == p {
				a.pass(p, m)
			}
			continue
		}
		a.toProc(m)
	}
	if a.way.due && !a.starting() {
		a.dial()
	}
}

// at does something with the process that has a life, unless it has ended.
func (a *Agent) at(life int64, do func(p *proc)) {
	for _, p := range a.procs { //lfvet:order one of them has it
		if p.life == life {
			do(p)
			return
		}
	}
}

func (in Started) apply(a *Agent) { a.at(in.Life, func(p *proc) { a.started(p, in) }) }

func (in Said) apply(a *Agent) { a.at(in.Life, func(p *proc) { a.said(p, in.M) }) }

func (in Ready) apply(a *Agent) {
	a.at(in.Life, func(p *proc) {
		p.Ready = true
		a.tell(control.Message{Kind: control.Ready, Job: p.Job, Proc: p.Proc.Proc, Gen: p.Gen})
	})
}

func (in Wrote) apply(a *Agent) {
	a.at(in.Life, func(p *proc) {
		a.tell(control.Message{Kind: control.Output, Job: p.Job, Proc: p.Proc.Proc, Gen: p.Gen, Stream: in.Stream, Data: in.Data})
	})
}

func (in Silent) apply(a *Agent) { a.at(in.Life, func(p *proc) { a.silent(p, in) }) }

func (in Exited) apply(a *Agent) { a.at(in.Life, func(p *proc) { a.exited(p, in) }) }

// started reports that a process runs or could not be started, and carries out what was ordered meanwhile.
func (a *Agent) started(p *proc, in Started) {
	answer := control.Message{Kind: control.Started, Job: p.Job, Proc: p.Proc.Proc, Gen: p.Gen, Pid: in.Pid,
		Err: in.Err}
	k := key{p.Job, p.Proc.Proc}
	p.starting = false
	if in.Err != "" {
		if in.Passing {
			answer.Code = control.Passing
		}
		delete(a.procs, k)
		a.note("job %s process %d: %s", p.Job, p.Proc.Proc, in.Err)
	} else {
		p.Pid = in.Pid
		delete(a.over, k)
		a.note("job %s process %d: started as pid %d", p.Job, p.Proc.Proc, in.Pid)
	}
	a.tell(answer)
	a.goOn(p)
}

// said passes on what a process may say.
func (a *Agent) said(p *proc, m control.Message) {
	m.Job, m.Proc, m.Gen = p.Job, p.Proc.Proc, p.Gen
	switch m.Kind {
	case control.Beat:
		p.beats = true
		return
	case control.Listening:
		p.Addr = m.Addr
	case control.Start, control.Leave, control.Kill, control.Slow, control.Hung, control.Widths,
		control.Ready:
		if m.Proc != 0 {
			return // only the process that leads looks after others
		}
		if m.Kind == control.Widths {
			p.widths = &m
		}
	default:
		return
	}
	a.tell(m)
}

// overdue reports whether a process has to be given up that was silent for so long, and whose state is what
// the system says of it.
func overdue(quiet time.Duration, running bool) bool {
	if running {
		return quiet >= LeaseRunning
	}
	return quiet >= LeaseStopped
}

// silent kills a process that has said once that it lives, and says nothing for too long.
func (a *Agent) silent(p *proc, in Silent) {
	if !p.beats || p.hung != "" || !overdue(in.For, in.Running) {
		return
	}
	p.hung = fmt.Sprintf("said nothing for %v, being %s,", in.For.Round(100*time.Millisecond), in.State)
	a.note("job %s process %d (pid %d): %s and is killed", p.Job, p.Proc.Proc, p.Pid, p.hung)
	a.say(Kill{p.life})
}

// exited reports the end of a process. The end is kept as well, since a head that was away has to learn of it later.
func (a *Agent) exited(p *proc, in Exited) {
	k, text := key{p.Job, p.Proc.Proc}, in.Text
	if p.hung != "" {
		text = p.hung + " and " + text
	}
	a.note("job %s process %d (pid %d): %s", p.Job, p.Proc.Proc, p.Pid, text)
	delete(a.procs, k)
	p.Over, p.Text, p.Code = true, text, in.Code
	a.over[k] = p.Proc
	a.tell(control.Message{Kind: control.Exited, Job: p.Job, Proc: p.Proc.Proc, Gen: p.Gen, Text: text,
		Code: in.Code})
	a.goOn(p)
}
