package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/configs/exit"
)

// fromProc hears what a process of a job says, or what its agent says of it.
func (h *Head) fromProc(a *agent, m control.Message) {
	j := h.jobs[m.Job]
	if j == nil || m.Proc < 0 || m.Proc >= len(j.Procs) {
		return
	}
	h.touch(keyJobs + j.ID)
	p := &j.Procs[m.Proc]
	if p.Gen != m.Gen || p.Host != a.Name || j.State != Running {
		return // a late word of one that has a successor
	}
	switch m.Kind {
	case control.Started:
		if m.Err != "" {
			if p.Over = true; h.avoid(j, m, "cannot start there: "+m.Err) {
				h.launch(j, m.Proc, p.Env)
				return
			}
			p.Over = false
			h.procEnded(j, m.Proc, "cannot start on "+p.Host+": "+m.Err, exit.Unreachable)
			return
		}
		p.Pid = m.Pid
		h.save(j)
		h.tellLeader(j, control.Message{Kind: control.Placed, Peer: m.Proc, Gen: p.Gen, Text: p.name()})
	case control.Listening:
		p.Addr = m.Addr
		h.save(j)
		h.tellPeers(j, "")
		h.askEnd(j, a)
	case control.Ready:
		if m.Proc == 0 { // its run has taken a step
			j.Steps = true
			h.save(j)
			return
		}
		p.Ready = true
		h.tellLeader(j, control.Message{Kind: control.Ready, Peer: m.Proc, Gen: p.Gen})
	case control.Exited:
		if cannotRun(m) && h.avoid(j, m, "cannot run there: it "+m.Text) {
			m.Code = -1
		}
		h.procEnded(j, m.Proc, m.Text, m.Code)
	case control.Slow:
		if m.Proc == 0 && m.Peer >= 0 && m.Peer < len(j.Procs) {
			host := j.Procs[m.Peer].Host
			what := "host " + host
			if m.Code == 1 {
				what = "the network of host " + host
			}
			h.event(Event{Kind: "slow", Job: j.ID, Host: host,
				Text: fmt.Sprintf("%s is slow in job %s: %.512s", what, j.ID, m.Text)})
		}
	case control.Hung:
		h.hung(j, m)
	case control.Widths:
		if m.Proc == 0 {
			h.takeWidths(j, m.Widths)
		}
	case control.Start, control.Leave, control.Kill:
		h.fromLeader(j, m)
	}
}

// cannotRun reports whether a process has ended since its program is none for its host: a library of the system's is not there,
// or the processor lacks an instruction. The codes are the loader's, and none of lfactor's.
func cannotRun(m control.Message) bool {
	return m.Code == 126 || m.Code == 127 || strings.HasPrefix(m.Text, "was killed by signal 4 ")
}

// shortFor is how long a job avoids hosts that were short of files, memory or disk for a process of its.
const shortFor = 10 * time.Second

// avoid keeps a job's processes from the host of one that cannot run there, for a while where the reason may pass, and
// reports whether another host takes that one.
func (h *Head) avoid(j *Job, m control.Message, why string) bool {
	p, list, what := &j.Procs[m.Proc], &j.Avoid, "avoids host "+j.Procs[m.Proc].Host
	if m.Kind == control.Started && m.Code == control.Passing {
		if h.now.Sub(j.ShortAt) >= shortFor {
			j.Short = nil
		}
		list, what, j.ShortAt = &j.Short, what+" for "+shortFor.String(), h.now.UTC()
	}
	was := *list
	if *list = append(slices.Clone(was), p.Host); h.where(j, m.Proc) == "" {
		*list = was
		return false
	}
	h.event(Event{Kind: "avoid", Job: j.ID, Host: p.Host, Text: fmt.Sprintf("job %s %s: process %d %.512s", j.ID, what, m.Proc, why)})
	return true
}

// avoids reports whether a job's processes are kept from a host.
func (h *Head) avoids(j *Job, host string) bool {
	return slices.Contains(j.Avoid, host) || h.now.Sub(j.ShortAt) < shortFor && slices.Contains(j.Short, host)
}

// hungMost is how often a process hangs on its host before the next one goes to another.
const hungMost = 2

// hung ends a process that says that it lives and takes no step, which the process that leads has found;
// another takes its place, as of any that was killed. One that hangs again where it was is put elsewhere:
// see where. The request comes until it has shown, and is counted once.
func (h *Head) hung(j *Job, m control.Message) {
	if m.Proc != 0 || m.Peer < 0 || m.Peer >= len(j.Procs) {
		return
	}
	p := &j.Procs[m.Peer]
	if !p.alive() || m.Peer > 0 && m.At != 0 && m.At != p.Ask { // it was for the one before
		return
	}
	if p.Hung == "" {
		p.Hung, p.Hangs = fmt.Sprintf("%.512s", m.Text), p.Hangs+1
		h.save(j)
		h.event(Event{Kind: "hung", Job: j.ID, Host: p.Host, Text: fmt.Sprintf(
			"process %d of job %s on %s is ended: %s", m.Peer, j.ID, p.Host, p.Hung)})
	}
	h.to(p.Host, control.Message{Kind: control.Kill, Job: j.ID, Proc: m.Peer, Gen: p.Gen})
}

// fromLeader does what the process that leads a job wants of another.
func (h *Head) fromLeader(j *Job, m control.Message) {
	if m.Proc != 0 || m.Peer < 1 || m.Peer >= len(j.Procs) {
		return
	}
	p := &j.Procs[m.Peer]
	switch {
	case m.Kind == control.Start && m.At <= p.Ask && m.At > 0: // the answer may have been lost
		if m.At == p.Ask {
			h.tellState(j, m.Peer)
		}
	case m.Kind == control.Start && j.Width >= len(j.Widths) && h.where(j, m.Peer) == "":
		// no host takes it now: the request is not taken, and is repeated until one does
	case m.Kind == control.Start && sizeOf(m.Env)+j.said(m.Peer) > mostSaid:
		h.event(Event{Kind: "refused", Job: j.ID, Text: fmt.Sprintf("the process that leads job %s starts process "+
			"%d with more words than the store takes: no leader of ours does", j.ID, m.Peer)})
	case m.Kind == control.Start:
		if p.Ask = m.At; p.alive() {
			h.to(p.Host, control.Message{Kind: control.Kill, Job: j.ID, Proc: m.Peer, Gen: p.Gen})
		}
		if p.Pid > 0 {
			h.event(Event{Kind: "restart", Job: j.ID, Host: p.Host,
				Text: fmt.Sprintf("process %d of job %s on %s is started again by its leader",
					m.Peer, j.ID, p.Host)})
		}
		h.launch(j, m.Peer, m.Env)
	case p.alive() && (m.At == 0 || m.At == p.Ask): // else it was for the one before
		h.to(p.Host, control.Message{Kind: m.Kind, Job: j.ID, Proc: m.Peer, Gen: p.Gen})
	}
}

// sizeOf is about what texts take in the store.
func sizeOf(texts []string) (n int) {
	for _, t := range texts {
		n += len(t) + 3
	}
	return n
}

// said is what the processes of a job but one were started with.
func (j *Job) said(but int) (n int) {
	for i := range j.Procs {
		if i != but {
			n += sizeOf(j.Procs[i].Env)
		}
	}
	return n
}

// procEnded notes the end of a process. The one that leads ends its job with it; if it was killed, another
// takes its place and goes on with the others, or the job starts again, from what is durable, if there are
// none. The end of another is its leader's to judge.
func (h *Head) procEnded(j *Job, n int, text string, code int) {
	p := &j.Procs[n]
	if p.Over {
		return
	}
	text = fmt.Sprintf("%.512s", text)
	p.Over, p.Addr, p.Why, p.Code = true, "", text, code
	h.save(j)
	if n > 0 {
		h.tellLeader(j, control.Message{Kind: control.Exited, Peer: n, Gen: p.Gen, Text: text, Code: code})
		if code != 0 && j.State == Running {
			h.event(Event{Kind: "exit", Job: j.ID, Host: p.Host,
				Text: fmt.Sprintf("process %d of job %s on %s %s", n, j.ID, p.Host, text)})
		}
		return
	}
	j.forgive(h.now)
	switch {
	case j.narrows() && !j.Stop && (code >= 0 || !j.headless()):
		h.requeue(j, "", fmt.Sprintf("job %s, whose leading process %s: ", j.ID, text))
	case code == 0 && j.Move && !j.Stop:
		h.again(j)
	case code == 0 && j.Move && j.Int: // it heard of the move first
		h.end(j, exit.Interrupted, keptEnd)
	case code >= 0:
		h.end(j, code, text)
	case j.Stop:
		h.end(j, 1, "was stopped by its user: it "+text)
	case j.Recent >= cmp.Or(j.Spec.Restarts, maxRestarts):
		h.end(j, 1, fmt.Sprintf("is given up: the process that leads it %s, and that %d times in a row (train.restarts)",
			text, j.Recent+1))
	case j.headless():
		j.restarted(h.now)
		j.Leaders++
		h.event(Event{Kind: "restart", Job: j.ID, Host: p.Host,
			Text: fmt.Sprintf("process 0 of job %s, which leads it, %s on %s; another takes its place, and "+
				"the other processes go on", j.ID, text, p.Host)})
		h.launch(j, 0, nil)
	default:
		h.killAll(j)
		j.restarted(h.now)
		j.Leaders, j.Move = 0, false // all of it goes where it may be
		h.event(Event{Kind: "restart", Job: j.ID, Host: p.Host,
			Text: fmt.Sprintf("job %s starts again (%d): its leading process on %s %s", j.ID, j.Restarts,
				p.Host, text)})
		h.launch(j, 0, nil)
	}
}

// again queues a job once more, which has made its step durable and ended to leave a host. If it was
// complete, it finds that out by itself.
func (h *Head) again(j *Job) {
	h.killAll(j)
	j.State, j.Move, j.Kept, j.Hosts = Queued, false, true, nil
	h.save(j)
	h.event(Event{Kind: "move", Job: j.ID, Text: "job " + j.ID + " has made its step durable and goes on elsewhere"})
	h.dismiss()
	h.due = true
}

// clear asks the jobs that have processes on a host to go on elsewhere.
func (h *Head) clear(a *agent, within time.Duration) {
	for _, j := range h.sorted() {
		if j.State != Running || !h.has(a, j) {
			continue
		}
		h.move(j, within)
	}
	h.dismiss()
}

// move asks a job to make its step durable and to end, within a time unless that is 0, to start again where it then may be.
func (h *Head) move(j *Job, within time.Duration) {
	if j.Move, j.By = true, (time.Time{}); within > 0 {
		j.By = h.now.Add(within)
	}
	h.save(j)
	h.askEnd(j, h.agents[j.Procs[0].Host])
}

// askEnd asks the process that leads a job to save and to end, if it is on this host and somebody wants that. It is asked again
// wherever the request may have been lost: its agent passes on the first.
func (h *Head) askEnd(j *Job, a *agent) bool {
	lead, sig := &j.Procs[0], sigTerm
	if j.Int {
		sig = sigInt
	}
	return a != nil && lead.Host == a.Name && lead.alive() && (j.Stop || j.Move) &&
		h.order(a, control.Message{Kind: control.Signal, Job: j.ID, Gen: lead.Gen, Code: sig, At: int64(max(0, j.By.Sub(h.now)))})
}

// has says whether a job has a process on a host.
func (h *Head) has(a *agent, j *Job) bool {
	return slices.ContainsFunc(j.Procs, func(p Proc) bool { return p.Host == a.Name && p.alive() })
}

// dismiss lets go of the agents that want to leave and have no process any more.
func (h *Head) dismiss() {
	for _, a := range h.inOrder() {
		if a.Leaving && !slices.ContainsFunc(h.sorted(),
			func(j *Job) bool { return j.State == Running && h.has(a, j) }) {
			h.order(a, control.Message{Kind: control.Quit})
		}
	}
}

// match holds the processes that an agent has against those it should have.
func (h *Head) match(a *agent, have []control.Proc) {
	seen := map[[2]string]bool{}
	for _, p := range have {
		j := h.jobs[p.Job]
		if j == nil || j.State != Running || p.Proc < 0 || p.Proc >= len(j.Procs) || j.Procs[p.Proc].Gen != p.Gen ||
			!j.Procs[p.Proc].alive() || j.Procs[p.Proc].Host != a.Name {
			h.order(a, control.Message{Kind: control.Kill, Job: p.Job, Proc: p.Proc, Gen: p.Gen})
			if j == nil || j.State == Ended {
				h.order(a, control.Message{Kind: control.Forget, Job: p.Job})
			}
			continue
		}
		seen[[2]string{p.Job, fmt.Sprint(p.Proc)}] = true
		h.touch(keyJobs + j.ID)
		known := &j.Procs[p.Proc]
		if p.Over {
			h.procEnded(j, p.Proc, p.Text, p.Code)
			continue
		}
		moved := known.Addr != p.Addr
		if known.Pid != p.Pid && p.Proc > 0 {
			known.Pid = p.Pid
			h.tellState(j, p.Proc)
		}
		known.Pid, known.Addr = p.Pid, p.Addr
		if p.Ready && !known.Ready {
			known.Ready = true
			h.tellLeader(j, control.Message{Kind: control.Ready, Peer: p.Proc, Gen: p.Gen})
		}
		if moved {
			h.save(j)
			h.tellPeers(j, "")
		}
	}
	for _, j := range h.sorted() {
		if j.State != Running { // a queued one has no processes
			continue
		}
		for n := range j.Procs {
			if p := &j.Procs[n]; p.Host == a.Name && p.alive() && !seen[[2]string{j.ID, fmt.Sprint(n)}] {
				h.procEnded(j, n, "is gone: its agent on "+a.Name+" does not have it", -1)
			}
		}
		h.tellPeers(j, a.Name) // the head before may have ended before it said so
		if lead := &j.Procs[0]; lead.Host == a.Name && lead.alive() {
			for n := range j.Procs[1:] {
				h.tellState(j, n+1)
			}
			h.askEnd(j, a)
		}
	}
}
