package decide

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/configs/exit"
)

// Signals that a process may be sent: the numbers are the same on all systems that agents run on.
const (
	sigInt  = 2
	sigTerm = 15
)

// Stop asks a job's leader to end after the step under way; with Now the job is killed. With Int the leader
// hears of an interrupt.
type Stop struct {
	Ask int64
	By  By
	Job string
	Now bool
	Int bool
}

func (in Stop) ask() int64 { return in.Ask }

// apply stops a job. Usually its leading process gets a signal, so that it can save; it is killed
// only on request, or ended if its host is away.
func (in Stop) apply(h *Head) {
	j, err := h.find(in.Job)
	if err == nil {
		err = j.mayTouch(in.By)
	}
	if err != nil {
		h.say(Answer{Ask: in.Ask, Err: err})
		return
	}
	h.touch(keyJobs + j.ID)
	switch {
	case j.State == Ended:
	case j.State == Queued && j.Kept:
		h.end(j, exit.Interrupted, keptEnd)
	case j.State == Queued:
		h.end(j, 130, "was stopped before it began")
	case in.Now:
		h.end(j, 130, "was killed by its user")
	default:
		j.Int = in.Int && (!j.Stop || j.Int) // what it hears first counts
		j.Stop = true
		h.save(j)
		if !h.askEnd(j, h.agents[j.Procs[0].Host]) {
			h.end(j, 1, "was stopped while the host that led it was away")
		}
	}
	h.say(Answer{Ask: in.Ask, Job: j.copy()})
}

// keptEnd is how a job has ended whose host was to leave, and which heard of that first.
const keptEnd = "was stopped, its last step being durable"

// find is the job of this name: a number, "last" for the newest, or "running" for the newest that runs.
func (h *Head) find(id string) (*Job, error) {
	switch id {
	case "last":
		id = strconv.Itoa(h.next)
	case "running": // one that waits or has ended has nothing to say
		all := h.sorted()
		slices.Reverse(all)
		i := slices.IndexFunc(all, func(j *Job) bool { return j.State == Running })
		if i < 0 {
			return nil, &Refusal{Missing, "no job runs; `lfactor ps` lists them"}
		}
		return all[i], nil
	}
	if j := h.jobs[id]; j != nil {
		return j, nil
	}
	return nil, &Refusal{Missing, fmt.Sprintf("there is no job %s; `lfactor ps` lists them", id)}
}

// What a driver reads below may be ahead of the store: it is told to others behind a Sync.

// Job is a job as it is now.
func (h *Head) Job(id string) (Job, error) {
	j, err := h.find(id)
	if err != nil {
		return Job{}, err
	}
	return j.copy(), nil
}

// Jobs are all jobs by their numbers, as they are now.
func (h *Head) Jobs() []Job {
	out := []Job{}
	for _, j := range h.sorted() {
		out = append(out, j.copy())
	}
	return out
}

// Host is a host as status tells of it.
type Host struct {
	control.Info
	State string        `json:"state"` // ready, busy, drained, away
	Since time.Time     `json:"since"`
	Skew  time.Duration `json:"skew"`
	Job   string        `json:"job,omitempty"`
	Procs []int         `json:"procs,omitempty"`
}

// Hosts are all hosts in the order of their names, as they are now.
func (h *Head) Hosts() []Host {
	type has struct {
		job   string
		procs []int
	}
	by := map[string]*has{}
	for _, j := range h.sorted() {
		for n := range j.Procs {
			p := &j.Procs[n]
			if j.State != Running || !p.alive() {
				continue
			}
			x := by[p.Host]
			if x == nil {
				x = &has{}
				by[p.Host] = x
			}
			x.job, x.procs = j.ID, append(x.procs, n)
		}
	}
	out := []Host{}
	for _, a := range h.inOrder() {
		x := Host{Info: a.info, State: "away", Since: a.since, Skew: a.skew}
		x.Name = a.Name
		if had := by[a.Name]; had != nil {
			x.Job, x.Procs = had.job, had.procs
		}
		switch {
		case !a.heard():
		case a.Drained:
			x.State = "drained"
		case x.Job != "":
			x.State = "busy"
		default:
			x.State = "ready"
		}
		out = append(out, x)
	}
	return out
}

// Live reports whether process n of a job is there, on which host, and on which connection that one is.
func (h *Head) Live(id string, n int) (alive bool, conn int64) {
	j := h.jobs[id]
	if j == nil || n < 0 || n >= len(j.Procs) || j.State != Running || !j.Procs[n].alive() {
		return false, 0
	}
	if a := h.agents[j.Procs[n].Host]; a != nil {
		conn = a.conn
	}
	return true, conn
}

// Count is how many processes a job has, 0 if there is no such job.
func (h *Head) Count(id string) int {
	if j := h.jobs[id]; j != nil {
		return len(j.Procs)
	}
	return 0
}

// State is a job's, "" if there is no such job.
func (h *Head) State(id string) State {
	if j := h.jobs[id]; j != nil {
		return j.State
	}
	return ""
}

// Conn is the connection of a host, 0 where it has none; member says whether there is such a host.
func (h *Head) Conn(host string) (conn int64, member bool) {
	a := h.agents[host]
	if a == nil {
		return 0, false
	}
	return a.conn, true
}

// Connected counts the agents that are.
func (h *Head) Connected() (n int) {
	for _, a := range h.agents { //lfvet:order a count
		if a.conn != 0 {
			n++
		}
	}
	return n
}

// Members is how many hosts there are to be.
func (h *Head) Members() int { return len(h.agents) }

// Events are those behind a number.
func (h *Head) Events(after int) []Event {
	i, _ := slices.BinarySearchFunc(h.events, after+1, func(e Event, n int) int { return e.N - n })
	return slices.Clone(h.events[i:])
}

// Links are the ways between hosts as they were measured last.
func (h *Head) Links() []control.Link { return h.links }

// Ending reports whether a user has ended the cluster.
func (h *Head) Ending() bool { return h.ending }
