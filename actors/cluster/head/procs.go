package head

import (
	"fmt"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// fromProc hears what a process of a job says, or what its agent says of it.
func (h *Head) fromProc(a *agent, m control.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jobs[m.Job]
	if j == nil || m.Proc < 0 || m.Proc >= len(j.Procs) {
		return
	}
	p := &j.Procs[m.Proc]
	if p.Gen != m.Gen || p.Host != a.Name || j.State != Running {
		return // a late word of one that has a successor
	}
	switch m.Kind {
	case control.Started:
		if m.Err != "" {
			h.procEnded(j, m.Proc, "cannot start on "+p.Host+": "+m.Err, 1)
			return
		}
		p.Pid = m.Pid
		h.save(j)
		h.tellLeader(j, control.Message{Kind: control.Placed, Peer: m.Proc, Gen: p.Gen,
			Text: fmt.Sprintf("pid %d on %s", p.Pid, p.Host)})
	case control.Listening:
		p.Addr = m.Addr
		h.save(j)
		h.tellAll(j)
	case control.Ready:
		p.Ready = true
		h.tellLeader(j, control.Message{Kind: control.Ready, Peer: m.Proc, Gen: p.Gen})
	case control.Exited:
		h.procEnded(j, m.Proc, m.Text, m.Code)
	case control.Start, control.Leave, control.Kill:
		h.fromLeader(j, m)
	}
}

// fromLeader does what the process that leads a job wants of another.
func (h *Head) fromLeader(j *job, m control.Message) {
	if m.Proc != 0 || m.Peer < 1 || m.Peer >= len(j.Procs) {
		return
	}
	p := &j.Procs[m.Peer]
	switch {
	case m.Kind == control.Start:
		if p.alive() {
			h.agents[p.Host].order(control.Message{Kind: control.Kill, Job: j.ID, Proc: m.Peer, Gen: p.Gen})
		}
		h.launch(j, m.Peer, m.Env)
	case p.alive():
		h.agents[p.Host].order(control.Message{Kind: m.Kind, Job: j.ID, Proc: m.Peer, Gen: p.Gen})
	}
}

// procEnded notes the end of a process. The one that leads ends its job with it; if it was killed, the
// job starts again, from what is durable. The end of another is its leader's to judge.
func (h *Head) procEnded(j *job, n int, text string, code int) {
	p := &j.Procs[n]
	if p.Over {
		return
	}
	p.Over, p.Addr = true, ""
	h.save(j)
	if n > 0 {
		h.tellLeader(j, control.Message{Kind: control.Exited, Peer: n, Gen: p.Gen, Text: text, Code: code})
		if code != 0 && j.State == Running {
			h.eventLocked(Event{Kind: "exit", Job: j.ID, Host: p.Host,
				Text: fmt.Sprintf("process %d of job %s on %s %s", n, j.ID, p.Host, text)})
		}
		return
	}
	switch {
	case code >= 0:
		h.end(j, code, text)
	case j.Stop:
		h.end(j, 1, "was stopped by its user: it "+text)
	case j.Restarts >= maxRestarts:
		h.end(j, 1, fmt.Sprintf("is given up: the process that leads it %s, and that for the %dth time",
			text, j.Restarts+1))
	default:
		h.killAll(j)
		j.Restarts++
		h.eventLocked(Event{Kind: "restart", Job: j.ID, Host: p.Host,
			Text: fmt.Sprintf("job %s starts again (%d): its leading process on %s %s", j.ID, j.Restarts,
				p.Host, text)})
		h.launch(j, 0, nil)
	}
}

// match holds the processes that an agent has against those it should have.
func (h *Head) match(a *agent, have []control.Proc) {
	seen := map[[2]string]bool{}
	for _, p := range have {
		j := h.jobs[p.Job]
		if j == nil || j.State != Running || p.Proc >= len(j.Procs) || j.Procs[p.Proc].Gen != p.Gen ||
			!j.Procs[p.Proc].alive() || j.Procs[p.Proc].Host != a.Name {
			a.order(control.Message{Kind: control.Kill, Job: p.Job, Proc: p.Proc, Gen: p.Gen})
			if j == nil || j.State == Ended {
				a.order(control.Message{Kind: control.Forget, Job: p.Job})
			}
			continue
		}
		seen[[2]string{p.Job, fmt.Sprint(p.Proc)}] = true
		known := &j.Procs[p.Proc]
		if p.Over {
			h.procEnded(j, p.Proc, p.Text, p.Code)
			continue
		}
		moved := known.Addr != p.Addr
		known.Pid, known.Addr = p.Pid, p.Addr
		if p.Ready && !known.Ready {
			known.Ready = true
			h.tellLeader(j, control.Message{Kind: control.Ready, Peer: p.Proc, Gen: p.Gen})
		}
		if moved {
			h.save(j)
			h.tellAll(j)
		}
	}
	for _, j := range h.sorted() {
		for n := range j.Procs {
			if p := &j.Procs[n]; j.State == Running && p.Host == a.Name && p.alive() &&
				!seen[[2]string{j.ID, fmt.Sprint(n)}] {
				h.procEnded(j, n, "is gone: its agent on "+a.Name+" does not have it", -1)
			}
		}
	}
}
