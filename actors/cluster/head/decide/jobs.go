package decide

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// State of a job.
type State string

// The states.
const (
	Queued  State = "queued"
	Running State = "running"
	Ended   State = "ended"
)

// Job is a job as the store knows it.
type Job struct {
	ID       string       `json:"id"`
	Spec     control.Spec `json:"spec"`
	State    State        `json:"state"`
	Why      string       `json:"why,omitempty"` // it waits, or how it ended
	Code     int          `json:"code" least:"-1024"`
	Hosts    []string     `json:"hosts,omitempty"` // that it has
	Avoid    []string     `json:"avoid,omitempty"` // on which its program cannot run
	Short    []string     `json:"short,omitempty"` // on which it could not start at ShortAt, for a reason that may pass
	ShortAt  time.Time    `json:"shortat,omitzero"`
	Procs    []Proc       `json:"procs,omitempty"`
	Epoch    int64        `json:"epoch"` // of its placement: it rises with each change
	Restarts int          `json:"restarts,omitempty"`
	Recent   int          `json:"recent,omitempty"`  // of the restarts, those that came soon after another
	Last     time.Time    `json:"last,omitzero"`     // of the newest restart
	Steps    bool         `json:"steps,omitempty"`   // its run has taken one since
	Leaders  int          `json:"leaders,omitempty"` // that have ended, of the processes that run now
	Stop     bool         `json:"stop,omitempty"`    // a user wants its end
	Int      bool         `json:"int,omitempty"`     // as by Ctrl-C
	Move     bool         `json:"move,omitempty"`    // it ends to start again on other hosts
	By       time.Time    `json:"by,omitzero"`       // when a host of it is taken back
	Kept     bool         `json:"kept,omitempty"`    // it has, and its last step is durable
	// Widths are with how many replicas the job can run, the most first, and Width is the one that it does;
	// none before its leading process has said so, and where there is one way only.
	Widths []control.Width `json:"widths,omitempty"`
	Width  int             `json:"width,omitempty"`
	Queued time.Time       `json:"queued"`
	Began  time.Time       `json:"began,omitzero"`
	Ended  time.Time       `json:"ended,omitzero"`
}

// Proc is a process of a job.
type Proc struct {
	Host  string `json:"host"`
	Gen   int    `json:"gen"` // counts the processes of this number; 0 before the first
	Pid   int    `json:"pid,omitempty"`
	Addr  string `json:"addr,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	Over  bool   `json:"over,omitempty"` // it has ended
	// what its leader started it with
	Env  []string `json:"env,omitempty" each:"1048576"`
	Ask  int64    `json:"ask,omitempty"`  // the leader's request that it was started for
	Why  string   `json:"why,omitempty"`  // how it ended
	Hung string   `json:"hung,omitempty"` // why it is ended that lives and takes no step
	// NoRoom says why no host takes it: the others are to make durable what they hold.
	NoRoom string `json:"noroom,omitempty"`
	// Hangs is how often processes of this number hung on their host one after another.
	Hangs int `json:"hangs,omitempty"`
	Code  int `json:"code,omitempty" least:"-1024"`
}

// copy is the job as it is now, which what happens later does not change.
func (j *Job) copy() Job {
	out := *j
	out.Hosts, out.Procs = slices.Clone(j.Hosts), slices.Clone(j.Procs)
	return out
}

// Holdup says which process of the job is ended because it takes no step; "" for none.
func (j *Job) Holdup() string {
	for n, p := range j.Procs {
		if p.Hung != "" && j.State == Running {
			return fmt.Sprintf("  process %d on %s: %s", n, p.Host, p.Hung)
		}
	}
	return ""
}

func (p *Proc) alive() bool { return p.Gen > 0 && !p.Over }

// maxRestarts is how often a job whose leader was killed starts again; more is a fault that comes back. One
// that has got on since for so long is not counted: a long run loses many hosts.
const (
	maxRestarts  = 5
	restartsLong = 10 * time.Minute
)

// forgive forgets restarts that are long ago, or before a step.
func (j *Job) forgive(now time.Time) {
	window := time.Duration(j.Spec.Window * float64(time.Second))
	if since := now.Sub(j.Last); since > max(restartsLong, window) || j.Steps && since >= window {
		j.Recent = 0
	}
}

// restarted counts a restart.
func (j *Job) restarted(now time.Time) {
	j.Restarts++
	j.Recent++
	j.Steps, j.Last = false, now.UTC()
}

// save stores a job; each change of its placement is a new epoch, which no other change has, in this term or
// another: an epoch that was said was stored, and a term begins behind all of them.
func (h *Head) save(j *Job) {
	h.epoch++
	j.Epoch = h.epoch
	h.put(keyJobs+j.ID, j)
}

// Submit queues a job.
type Submit struct {
	Ask  int64
	By   By
	Spec control.Spec
}

func (in Submit) ask() int64 { return in.Ask }

// apply takes a job into the queue, if the cluster could ever run it.
func (in Submit) apply(h *Head) {
	s := in.Spec
	s.User, s.Role, s.Dirs = in.By.Name, in.By.Role, h.users[in.By.Name].Dirs
	err := h.fit(s)
	if err == nil {
		err = h.govern(in.By, &s)
	}
	if err != nil {
		h.say(Answer{Ask: in.Ask, Err: err})
		return
	}
	h.next++
	j := &Job{ID: strconv.Itoa(h.next), Spec: s, State: Queued, Queued: h.now}
	h.jobs[j.ID] = j
	h.save(j)
	h.tellHosts()
	h.event(Event{Kind: "queued", Job: j.ID, Text: fmt.Sprintf("job %s of %s: %s", j.ID, s.User, s.Name)})
	h.due = true
	h.say(Answer{Ask: in.Ask, Job: j.copy()})
}

// fit says why a job cannot be one of this cluster.
func (h *Head) fit(s control.Spec) error {
	if err := s.Check(); err != nil {
		return &Refusal{Bad, err.Error()}
	}
	if most := control.MostBeside * max(1, len(h.agents)); s.Procs > most {
		return &Refusal{Unfit, fmt.Sprintf("the job wants %d processes, and %d hosts take %d at most: ask for fewer",
			s.Procs, len(h.agents), most)}
	}
	size := 0
	for _, text := range s.Files { //lfvet:order a sum
		size += len(text)
	}
	if size > maxFiles {
		return &Refusal{Bad, fmt.Sprintf("the files that go with the job have %.1f MiB together, and %d MiB "+
			"go at most: put what is large where all hosts see it", float64(size)/(1<<20), maxFiles>>20)}
	}
	n, open := 0, 0
	for _, a := range h.agents { //lfvet:order a count
		if !a.Drained {
			n++
		}
	}
	for _, j := range h.jobs { //lfvet:order a count
		if j.State != Ended {
			open++
		}
	}
	if open >= mostOpen {
		return &Refusal{Bad, fmt.Sprintf("%d jobs have not ended, and no more are taken: stop some", open)}
	}
	if s.Hosts > n {
		return &Refusal{Unfit, fmt.Sprintf("the job wants %d hosts and the cluster has %d: ask for fewer, "+
			"or `lfactor cluster add` some", s.Hosts, n)}
	}
	return nil
}

// MostJob is how large a job may be as it is submitted, in bytes of JSON: an order for a process has to take
// it, and a commit with what its leader and its hosts say of it besides.
const MostJob = 8 << 20

// mostOpen is how many jobs may wait and run at a time.
const mostOpen = 1024

// maxFiles bounds the files of a job, in bytes: base64 makes four of three.
const maxFiles = MostJob/4*3 - 1<<20

// mostSaid bounds what the process that leads says of the others, which is stored with the job, in bytes.
const mostSaid = 2 << 20

// there counts the hosts that a job may count on: not drained nor avoided, and connected or away for no more than a
// moment.
func (h *Head) there(j *Job) (n int) {
	for _, a := range h.agents { //lfvet:order a count
		if !a.Drained && a.here() && !h.avoids(j, a.Name) {
			n++
		}
	}
	return n
}

// sorted lists the jobs by their numbers.
func (h *Head) sorted() []*Job {
	out := make([]*Job, 0, len(h.jobs))
	for _, j := range h.jobs { //lfvet:order sorted below
		out = append(out, j)
	}
	sort.Slice(out, func(a, b int) bool {
		return len(out[a].ID) < len(out[b].ID) || len(out[a].ID) == len(out[b].ID) && out[a].ID < out[b].ID
	})
	return out
}

// free lists the hosts that may take a job and have none, in the order of their names.
func (h *Head) free() (out []string) {
	used := map[string]bool{}
	for _, j := range h.jobs { //lfvet:order a set
		if j.State == Running {
			for _, n := range j.Hosts {
				used[n] = true
			}
		}
	}
	for _, a := range h.inOrder() {
		if a.heard() && !a.Drained && !used[a.Name] {
			out = append(out, a.Name)
		}
	}
	return out
}

// schedule starts the jobs that wait, in their order: none overtakes another, so that a large one is not starved.
func (h *Head) schedule() {
	if h.ending {
		return
	}
	for _, j := range h.sorted() {
		if j.State != Queued {
			continue
		}
		h.touch(keyJobs + j.ID)
		width, hosts, why := h.pick(j, h.free())
		if j.Why = why; hosts == nil {
			return
		}
		j.Width = width
		h.begin(j, hosts)
	}
	h.widen()
}

// begin places a job's processes, neighbours in their numbers on one host, and starts the one that leads.
func (h *Head) begin(j *Job, hosts []string) {
	j.State, j.Why, j.Hosts, j.Began, j.Leaders, j.Kept = Running, "", hosts, h.now, 0, false
	last := 0 // late words of earlier processes are not to be taken for these ones'
	for _, p := range j.Procs {
		last = max(last, p.Gen)
	}
	j.Procs = make([]Proc, j.procs())
	for n := range j.Procs {
		j.Procs[n] = Proc{Host: hosts[n*len(hosts)/len(j.Procs)], Gen: last, Over: true}
	}
	by := ""
	if !slices.IsSortedFunc(hosts, ByName) {
		by = ", in the order of the fastest links"
	}
	h.event(Event{Kind: "start", Job: j.ID,
		Text: fmt.Sprintf("job %s starts on %v%s%s", j.ID, hosts, by, j.Narrow())})
	h.launch(j, 0, nil)
}

// launch starts a process of a job: on its host, else on a spare one, else on another of the job's.
func (h *Head) launch(j *Job, n int, env []string) {
	p := &j.Procs[n]
	host := h.where(j, n)
	switch {
	case host == "" && j.Width < len(j.Widths):
		h.noRoom(j, n, p.Host)
		return
	case host == "" && n == 0:
		h.noLead(j, p.Host)
		return
	case host == "":
		return // its leader asks again, and again
	}
	if host != p.Host {
		h.event(Event{Kind: "move", Job: j.ID, Host: host,
			Text: fmt.Sprintf("process %d of job %s moves from %s to %s", n, j.ID, p.Host, host)})
		if !slices.Contains(j.Hosts, host) {
			j.Hosts = append(j.Hosts, host)
		}
	}
	hangs := p.Hangs
	if host != p.Host {
		hangs = 0
	}
	*p = Proc{Host: host, Gen: p.Gen + 1, Env: env, Ask: p.Ask, Hangs: hangs}
	h.save(j)
	spec := j.spec()
	m := control.Message{Kind: control.Order, Job: j.ID, Proc: n, Gen: p.Gen, Epoch: j.Epoch,
		Spec: &spec, Env: env, Peers: j.peers()}
	if n == 0 && j.Leaders > 0 {
		m.Code, m.Procs = j.Leaders, j.others()
	}
	if len(h.agents) >= few {
		h.tellHost(h.agents[host])
	}
	h.to(host, m)
}

// others are the processes that do not lead, for one that takes the lead over.
func (j *Job) others() (out []control.Proc) {
	for n, p := range j.Procs[1:] {
		x := control.Proc{Job: j.ID, Proc: n + 1, Gen: p.Gen, Pid: p.Pid, Ready: p.Ready, Over: p.Over,
			Node: p.Host, Env: p.Env}
		if p.Over {
			x.Text, x.Code = "ended while no process led", -1
		}
		out = append(out, x)
	}
	return out
}

// headless reports whether a job whose leader has ended can go on with its other processes: all were
// started, and one is left at least.
func (j *Job) headless() bool {
	started := !slices.ContainsFunc(j.Procs[1:], func(p Proc) bool { return !p.Ready })
	return started && slices.ContainsFunc(j.Procs[1:], func(p Proc) bool { return p.alive() })
}

// where is the host for process n of a job: its own, unless processes hung there again and again, else a
// spare one, else that of the job's with the fewest processes; "" if none has room.
func (h *Head) where(j *Job, n int) string {
	up := func(host string) bool {
		a := h.agents[host]
		return a != nil && a.heard() && !a.Drained && !h.avoids(j, host) && h.hasRoom(j, n, host)
	}
	home := j.Procs[n].Host
	if stays := j.Procs[n].Hangs < hungMost; stays && up(home) {
		return home
	}
	for _, host := range h.free() {
		if host != home && up(host) {
			return host
		}
	}
	if up(home) {
		return home
	}
	least, load := "", 0
	for _, n := range j.Hosts {
		if !up(n) {
			continue
		}
		k := 0
		for i := range j.Procs {
			if j.Procs[i].Host == n && j.Procs[i].alive() {
				k++
			}
		}
		if least == "" || k < load {
			least, load = n, k
		}
	}
	return least
}

// peers is where the processes of a job take edges.
func (j *Job) peers() map[int]control.Peer {
	out := map[int]control.Peer{}
	for n, p := range j.Procs {
		if p.Addr != "" && p.alive() {
			out[n] = control.Peer{Node: p.Host, Addr: p.Addr, Gen: p.Gen}
		}
	}
	return out
}

// tellPeers sends the processes of a job on a host, "" for all, where the others are. Who knows it takes no notice.
func (h *Head) tellPeers(j *Job, host string) {
	peers := j.peers()
	for n, p := range j.Procs {
		if p.alive() && j.State == Running && (host == "" || p.Host == host) {
			h.to(p.Host, control.Message{Kind: control.Peers, Job: j.ID, Proc: n, Gen: p.Gen,
				Epoch: j.Epoch, Peers: peers})
		}
	}
}

// tellLeader tells the process that leads what has become of another.
func (h *Head) tellLeader(j *Job, m control.Message) {
	m.At = j.Procs[m.Peer].Ask
	if lead := &j.Procs[0]; lead.alive() {
		m.Job, m.Proc = j.ID, 0
		h.to(lead.Host, m)
	}
}

// tellState repeats to the process that leads a job what was said of another: it may have been lost with a
// connection, or with the head before this one. Who has heard it takes no notice.
func (h *Head) tellState(j *Job, n int) {
	p := &j.Procs[n]
	if p.NoRoom != "" { // the request has brought no process
		h.tellLeader(j, control.Message{Kind: control.NoRoom, Peer: n, Gen: p.Gen, Text: p.NoRoom})
		return
	}
	if p.Pid > 0 {
		h.tellLeader(j, control.Message{Kind: control.Placed, Peer: n, Gen: p.Gen, Text: p.name()})
	}
	if p.Ready {
		h.tellLeader(j, control.Message{Kind: control.Ready, Peer: n, Gen: p.Gen})
	}
	if p.Over {
		h.tellLeader(j, control.Message{Kind: control.Exited, Peer: n, Gen: p.Gen, Text: p.Why, Code: p.Code})
	}
}

// name is a process as its leader calls it.
func (p *Proc) name() string { return fmt.Sprintf("pid %d on %s", p.Pid, p.Host) }

// end ends a job: whatever still runs of it is killed.
func (h *Head) end(j *Job, code int, why string) {
	j.State, j.Code, j.Why, j.Ended = Ended, code, why, h.now
	j.Spec = j.Spec.Bare() // nothing starts it again, and what it came with may have passwords
	h.killAll(j)
	for _, n := range j.Hosts {
		h.to(n, control.Message{Kind: control.Forget, Job: j.ID})
	}
	h.save(j)
	h.tellHosts()
	h.dismiss()
	h.event(Event{Kind: "end", Job: j.ID, Text: fmt.Sprintf("job %s %s", j.ID, why)})
	h.due = true
}

// killAll kills all processes of a job that may still run. Each order names the generation, so that
// it cannot hit a successor.
func (h *Head) killAll(j *Job) {
	for n := range j.Procs {
		if p := &j.Procs[n]; p.alive() {
			h.to(p.Host, control.Message{Kind: control.Kill, Job: j.ID, Proc: n, Gen: p.Gen})
			p.Over = true
		}
	}
}
