package decide

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// agent is a host of the cluster, whether it is connected or not:
//
//	absent ──Connect──▶ heard ──Quiet──▶ suspect ──Heard──▶ heard
//	  ▲                   │ Gone            │ Gone
//	  │                   ▼                 ▼
//	  └──Elapsed(lost)── away ◀─────────────┘      away ──Connect──▶ heard
//
// One that was never here, or is lost, is absent. Each has conn and lost that say which: see heard and here.
// In the words of the field: failure detector, heartbeat.
type agent struct {
	Member
	info  control.Info
	told  bool  // it was told on this connection which hosts there are
	kept  bool  // it was told the directories of jobs only, since it has no process
	conn  int64 // 0 while it is away
	quiet bool  // it is connected and suspect, since it says nothing
	since time.Time
	lost  int64         // timer that runs while it is away and may come back; 0 for none
	why   string        // it is away
	skew  time.Duration // of its clock against the head's
}

// Member is a host as the store knows it.
type Member struct {
	Name    string    `json:"name"`
	Joined  time.Time `json:"joined"`
	Met     bool      `json:"met,omitempty"` // its agent has connected once
	Serial  string    `json:"serial"`        // of its certificate
	Drained bool      `json:"drained,omitempty"`
	Leaving bool      `json:"leaving,omitempty"` // it ends when it has no process any more
}

// Graces. An agent that is back within grace was never away for its processes; all are, at a new head,
// within returning.
const (
	grace     = 400 * time.Millisecond
	returning = 3 * time.Second
	notBack   = "it did not come back to the new head"
)

// heard reports whether an agent is connected and says something.
func (a *agent) heard() bool { return a.conn != 0 && !a.quiet }

// here reports whether a host is connected, or may be back in a moment.
func (a *agent) here() bool { return a.conn != 0 || a.lost != 0 }

// inOrder lists the hosts in the order of their names.
func (h *Head) inOrder() []*agent {
	out := make([]*agent, 0, len(h.agents))
	for _, a := range h.agents { //lfvet:order sorted below
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *agent) int { return ByName(a.Name, b.Name) })
	return out
}

// ByName orders h2 before h10.
func ByName(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return slices.Compare([]byte(a), []byte(b))
}

// keep stores what a host's membership is.
func (h *Head) keep(a *agent) { h.put(keyMembers+a.Name, a.Member) }

// order sends a message to an agent's host, and reports whether it is connected.
func (h *Head) order(a *agent, m control.Message) bool {
	if a == nil || a.conn == 0 {
		return false
	}
	h.say(Send{a.conn, m})
	return true
}

// to sends a message to the agent of a host.
func (h *Head) to(host string, m control.Message) bool { return h.order(h.agents[host], m) }

// lose starts the time after which a host that is away is lost.
func (h *Head) lose(a *agent, after time.Duration, why string) {
	h.found(a)
	a.lost, a.why = h.timer(), why
	h.losing[a.lost] = a.Name
	h.say(Wake{a.lost, after})
}

// found ends that time.
func (h *Head) found(a *agent) {
	delete(h.losing, a.lost)
	a.lost = 0
}

// coming reports whether hosts still come back to a new head, of which thousands take their time: none is lost meanwhile.
func (h *Head) coming() bool {
	return h.now.Sub(h.joined) < time.Second && h.now.Sub(h.began) < returning+time.Duration(len(h.agents))*10*time.Millisecond
}

// Connect says that an agent says hello on a new connection. It is answered: with an error it is not let in.
type Connect struct {
	Ask    int64
	Conn   int64
	Name   string    // in its certificate
	Serial string    // of that
	Until  time.Time // when it ends, or has ended; zero is never
	Remote string    // address
	Hello  control.Message
	Wrote  []control.Proc // how far the output of its processes has come
}

func (in Connect) ask() int64 { return in.Ask }

// apply takes in an agent that connects, or refuses it. Then the head compares what the agent runs
// with what it should, since both may have changed while it was away.
func (in Connect) apply(h *Head) {
	a, info := h.agents[in.Name], in.Hello.Info
	if why := cmp.Or(h.unwanted(a, info), in.overdue(h.now)); why != "" {
		if h.refused[in.Name] != why { // it asks again and again
			h.event(Event{Kind: "refused", Host: in.Name, Text: fmt.Sprintf("agent %s at %s refused: %s",
				in.Name, in.Remote, why)})
		}
		h.refused[in.Name] = why
		h.say(Answer{Ask: in.Ask, Err: &Refusal{Denied, why}})
		return
	}
	if a.conn != 0 { // the same one, whose old connection has ended unseen
		h.say(Close{a.conn})
	}
	// The same process id means that the agent lost its connection only, and not its memory.
	back := a.info.Pid == info.Pid && info.Pid != 0
	was := a.Member
	a.info, a.conn, a.since, a.Serial, a.Met = *info, in.Conn, h.now, in.Serial, true
	a.quiet, a.told, a.kept, a.why, h.joined = false, false, false, "", h.now
	h.found(a)
	delete(h.refused, a.Name)
	a.skew = h.skewOf(info)
	if a.Leaving && !back {
		a.Leaving, a.Drained = false, false // it comes back to take part
	}
	if a.Member != was {
		h.keep(a)
	}
	h.say(Answer{Ask: in.Ask})
	h.order(a, control.Message{Kind: control.Welcome, Revoked: slices.Clone(h.revoked), Epoch: h.o.Term,
		Procs: in.Wrote, At: int64(control.More(len(h.agents)))})
	text := fmt.Sprintf("host %s joined from %s, agent pid %d", a.Name, in.Remote, info.Pid)
	if back {
		text = fmt.Sprintf("host %s is connected again", a.Name)
	}
	if !in.Until.IsZero() && h.now.After(in.Until) {
		text += "; its certificate had ended, and it gets another"
	}
	h.event(Event{Kind: "join", Host: a.Name, Text: text})
	h.tellSoon()
	h.match(a, in.Hello.Procs)
	h.due = true
}

// certGrace is for how long behind its end an agent's certificate still gets it another: its host, or the head, may have
// been away for longer than a certificate lives.
const certGrace = 30 * 24 * time.Hour

// overdue says that an agent's certificate has ended for so long that it gets no other by itself, "" if it does.
func (in Connect) overdue(now time.Time) string {
	if in.Until.IsZero() || now.Sub(in.Until) <= certGrace {
		return ""
	}
	return fmt.Sprintf("its certificate ended on %s, more than %d days ago: `lfactor cluster add %s`, or `lfactor cluster join` on that host "+
		"with a token, takes it in again", in.Until.Format(time.DateOnly), certGrace/(24*time.Hour), in.Name)
}

// unwanted says why an agent is not let in, "" if it is.
func (h *Head) unwanted(a *agent, info *control.Info) string {
	switch {
	case a == nil:
		return "this host is not a member any more: `lfactor cluster join` takes it in again"
	case info.Binary != h.o.Binary:
		return fmt.Sprintf("host %s runs another binary (lfactor %s, %.12s; the head has lfactor %s, "+
			"%.12s): `lfactor cluster up` pushes one to all", a.Name,
			info.Version, info.Binary, h.o.Version, h.o.Binary)
	case a.conn != 0 && info.Pid != a.info.Pid:
		return fmt.Sprintf("an agent of host %s is connected already, pid %d", a.Name, a.info.Pid)
	}
	return ""
}

func (h *Head) skewOf(info *control.Info) time.Duration { return h.now.Sub(time.Unix(0, info.Clock)) }

// Said is a message of an agent on its connection.
type Said struct {
	Host string
	Conn int64
	M    control.Message
}

// apply takes a message of an agent: news of the host, its wish to leave, or news of a process.
func (in Said) apply(h *Head) {
	a := h.agents[in.Host]
	if a == nil || a.conn != in.Conn {
		return // a late word on an old connection
	}
	switch in.M.Kind {
	case control.Beat:
		if in.M.Info != nil {
			a.info, a.skew = *in.M.Info, h.skewOf(in.M.Info)
		}
	case control.Leaving:
		a.Leaving, a.Drained = true, true
		h.keep(a)
		h.event(Event{Kind: "drain", Host: a.Name, Text: fmt.Sprintf("host %s leaves: %.512s", a.Name,
			cmp.Or(in.M.Text, "its agent was asked to end"))})
		h.clear(a, time.Duration(in.M.At))
	default:
		h.fromProc(a, in.M)
	}
}

// Quiet says that an agent has been silent for so long that it is suspect.
type Quiet struct {
	Host string
	Conn int64
	For  time.Duration
}

// apply notes that an agent has been silent. It is only suspected so far; its processes stay.
func (in Quiet) apply(h *Head) {
	a := h.agents[in.Host]
	if a == nil || a.conn != in.Conn || a.quiet || h.ending {
		return
	}
	a.quiet = true
	h.event(Event{Kind: "suspect", Host: a.Name, Text: fmt.Sprintf("host %s: %v", a.Name, control.Silent(in.For))})
	h.tellSoon()
	h.say(Revive{a.Name})
}

// Heard says that an agent says something, which was silent for so long at most.
type Heard struct {
	Host string
	Conn int64
	Gap  time.Duration
}

// apply takes the suspicion back when the agent speaks again on the same connection.
func (in Heard) apply(h *Head) {
	a := h.agents[in.Host]
	if a == nil || a.conn != in.Conn || !a.quiet {
		return
	}
	a.quiet = false
	h.event(Event{Kind: "join", Host: a.Name, Text: fmt.Sprintf(
		"host %s is heard again: its agent was silent for %v", a.Name, in.Gap.Round(10*time.Millisecond))})
	h.tellSoon()
	h.due = true
}

// Gone says that the connection of an agent has ended. Its processes are lost when it is not back within the
// grace, or was given that already by being silent.
type Gone struct {
	Host   string
	Conn   int64
	Why    string
	Silent bool
}

// apply notes that an agent's connection has ended. It gets some time to come back before its
// processes count as lost, unless it had been silent before.
func (in Gone) apply(h *Head) {
	a := h.agents[in.Host]
	if a == nil || a.conn != in.Conn {
		return // it has a newer one, or was removed
	}
	known := a.quiet
	a.conn, a.since, a.quiet = 0, h.now, false
	if h.ending {
		return
	}
	if !known {
		h.event(Event{Kind: "suspect", Host: a.Name, Text: fmt.Sprintf("host %s: %s", a.Name, in.Why)})
		h.tellSoon()
	}
	wait := grace
	if in.Silent {
		wait = 0
	}
	h.lose(a, wait, in.Why)
	h.say(Revive{a.Name})
}

// gone declares a host lost whose time is up, and with it its processes.
func (h *Head) gone(a *agent) {
	h.found(a)
	if a.conn != 0 || h.ending {
		return
	}
	if a.why == notBack && h.coming() {
		h.lose(a, time.Second, notBack)
		return
	}
	lost := Event{Kind: "lost", Host: a.Name, Text: fmt.Sprintf("host %s is lost: %s", a.Name, a.why)}
	if !a.Met {
		lost.Kind, lost.Text = "absent", fmt.Sprintf("host %s has not joined yet", a.Name)
	}
	h.event(lost)
	h.say(Revive{a.Name})
	h.lostWith(a.Name, fmt.Sprintf("was lost with its host %s (%s)", a.Name, a.why))
	h.due = true
}

// lostWith ends the processes of a host.
func (h *Head) lostWith(host, text string) {
	for _, j := range h.sorted() {
		for n := 0; n < len(j.Procs) && j.State == Running; n++ {
			if p := &j.Procs[n]; p.Host == host && p.alive() {
				h.procEnded(j, n, text, -1)
			}
		}
	}
}

// Hush judges an agent that says nothing: on a machine with more work than processors, by how long it was
// silent before and came back.
type Hush struct {
	Gap  time.Duration
	More time.Duration // that it waits longer between its beats, since there are so many: see control.More
}

// Limit is how long an agent may be silent and is not suspect.
func (u Hush) Limit() time.Duration {
	return min(control.HeadSilence+10*u.More, max(control.Silence+2*u.More, 3*u.Gap))
}

// Judge says whether an agent is suspect, and whether it is lost. A host that acknowledges nothing is lost
// when the grace has passed too. One that does is there, and its agent is stopped or waits for a processor:
// it may take until control.Stopped, since its processes go on and their leader hears them by itself.
func (u Hush) Judge(q control.Quiet) (suspect bool, err error) {
	if q.Dead >= u.Limit()+grace || q.For >= control.Stopped+10*u.More {
		err = control.Silent(q.For)
	}
	return q.For >= u.Limit(), err
}

// Drain takes no new process to a host, or with Back does again. Jobs that have it are asked to make their
// step durable and to end; they start again elsewhere.
type Drain struct {
	Ask  int64
	Host string
	Back bool
}

func (in Drain) ask() int64 { return in.Ask }

// apply takes a host out of use or back into it. Processes that run there are moved.
func (in Drain) apply(h *Head) {
	a := h.agents[in.Host]
	if a == nil {
		h.noHost(in.Ask, in.Host)
		return
	}
	a.Drained = !in.Back
	h.keep(a)
	text := "host " + a.Name + " takes processes again"
	if a.Drained {
		text = "host " + a.Name + " is drained: it takes no new process"
	}
	h.event(Event{Kind: "drain", Host: a.Name, Text: text})
	if a.Drained {
		h.clear(a, 0)
	}
	h.due = true
	h.say(Answer{Ask: in.Ask, Member: a.Member})
}

// noHost answers a request for a host that is unknown.
func (h *Head) noHost(ask int64, name string) {
	h.say(Answer{Ask: ask, Err: &Refusal{Missing,
		fmt.Sprintf("the cluster has no host %s; `lfactor cluster status` lists them", name)}})
}

// Remove ends a host's membership: its certificate is revoked everywhere and its agent ends.
type Remove struct {
	Ask  int64
	Host string
}

func (in Remove) ask() int64 { return in.Ask }

// apply removes a host for good: its certificate is revoked, its agent ends, and its processes count as lost at once.
func (in Remove) apply(h *Head) {
	a := h.agents[in.Host]
	if a == nil {
		h.noHost(in.Ask, in.Host)
		return
	}
	h.put(keyRevoked+a.Serial, a.Name)
	h.write(keyMembers+a.Name, nil)
	h.isRemoved(keyMembers + a.Name)
	h.order(a, control.Message{Kind: control.Quit, Code: 1})
	delete(h.agents, a.Name)
	h.tellHosts()
	h.revoke(a.Serial)
	h.lostWith(a.Name, "was lost with its host "+a.Name+", which was removed")
	h.event(Event{Kind: "remove", Host: a.Name, Text: "host " + a.Name + " is removed and its certificate revoked"})
	h.due = true
	h.say(Answer{Ask: in.Ask, Member: a.Member})
}

// Enroll makes hosts members that `cluster up` has made certificates for: their serial numbers by their names.
type Enroll struct {
	Serials map[string]string
	Last    bool // there are no more
}

// apply enters hosts that got their certificates when the cluster was made, by name order; the last
// batch is marked, so that it happens once.
func (in Enroll) apply(h *Head) {
	for _, name := range slices.Sorted(maps.Keys(in.Serials)) {
		h.enter(name, in.Serials[name])
	}
	if in.Last {
		h.put(keyEnrolled, true)
	}
}

// enter writes a host into the list of members. One that was a member before, and may be back in a moment,
// is lost as it would have been.
func (h *Head) enter(name, serial string) *agent {
	a := &agent{Member: Member{Name: name, Joined: h.now, Serial: serial}, since: h.now}
	if old := h.agents[name]; old != nil {
		a.lost, a.why = old.lost, old.why
	}
	h.agents[name] = a
	h.keep(a)
	h.isThere(keyMembers + name)
	return a
}
