package decide

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// Options are those of a head in one term.
type Options struct {
	Term    int64
	Binary  string // hash of this program, which agents must have too
	Version string
	// Fill is what processes may fill of a host with so much memory, both in bytes.
	Fill func(int64) int64
	// Aside says of keys of the store why they are not to be read: they have ended heads before.
	Aside map[string]string
	// Known is what this head knew was revoked and removed, whatever the store says: a backup may be older.
	Known Revoked
	// Touch hears which stored thing is worked on, "" for none any more; may be nil.
	Touch func(key string)
}

// Head decides for the cluster in one term.
type Head struct {
	o   Options
	now time.Time
	gate

	agents  map[string]*agent
	jobs    map[string]*Job
	next    int // number of the newest job
	epoch   int64
	events  []Event
	revoked []string
	removed map[string]time.Time // users and hosts, by their keys, when they were
	late    []string             // keys of what a backup has brought back, and of what it has forgotten
	users   map[string]User
	tokens  map[string]Ticket // by the hash of their secrets
	refused map[string]string // why agents were refused last, by their hosts
	told    map[string]string // hosts that were connected when agents were told last, with their addresses
	dirs    []string          // that they were told
	owners  []string          // of these
	links   []control.Link    // as they were measured last
	timers  int64             // that were started
	retry   int64             // timer for a commit that has failed
	telling int64             // timer for telling of hosts that have come, 0 for none
	losing  map[int64]string  // hosts that are away, by the timers after which they are lost
	began   time.Time         // its term
	joined  time.Time         // the last agent that has connected
	due     bool              // jobs that wait may have room now
	ending  bool
	aside   []aside // what was not read
	at      string  // key of what the step under way works on
}

// lateText is the answer to whoever asks a head that leads no more.
const lateText = "another head leads the cluster by now"

// Keys of the store.
const (
	keyMembers = "members/"
	keyJobs    = "jobs/"
	keyEvents  = "events/"
	keyTokens  = "tokens/"
	keyRevoked = "revoked/"
	keyUsers   = "users/"
	// keyEnrolled says that the first members have been taken.
	keyEnrolled = "enrolled"
)

// Lister reads the store: see store.Term.
type Lister interface {
	List(prefix string, see func(key string, value []byte) error) error
}

// Load makes the head of a term from what the store has. Agents connect again by themselves; those that do
// not within the grace are lost, as their processes are: Begin starts these timers. The result says
// whether the first members have been taken already.
func Load(o Options, from Lister) (h *Head, enrolled bool, err error) {
	h = &Head{o: o, agents: map[string]*agent{}, losing: map[int64]string{}, jobs: map[string]*Job{}, tokens: map[string]Ticket{},
		refused: map[string]string{}, users: map[string]User{}, removed: map[string]time.Time{}, epoch: o.Term}
	read := func(prefix string, see func(key string, value []byte) error) {
		if err != nil {
			return
		}
		err = from.List(prefix, func(key string, value []byte) error {
			why := o.Aside[prefix+key]
			if h.touch(prefix + key); why == "" {
				if err := see(key, value); err != nil {
					why = err.Error()
				}
			}
			if why != "" {
				h.aside = append(h.aside, aside{prefix + key, why, value})
			}
			return nil
		})
	}
	read(keyMembers, each(func(_ string, m Member) error { h.agents[m.Name] = &agent{Member: m}; return nil }))
	read(keyRevoked, func(k string, _ []byte) error {
		h.revoked = append(h.revoked, k)
		return nil
	})
	read(keyUsers, each(func(_ string, u User) error { h.users[u.Name] = u; return nil }))
	read(keyEvents, each(func(_ string, e Event) error {
		if n := len(h.events); n == 0 || e.N > h.events[n-1].N {
			h.events = append(h.events, e)
		}
		return nil
	}))
	read(keyTokens, each(func(k string, t Ticket) error { h.tokens[k] = t; return nil }))
	read(keyJobs, func(k string, v []byte) error {
		h.numbered(k)
		return each(h.readJob)(k, v)
	})
	read(keyAside+keyJobs, func(k string, _ []byte) error { h.numbered(k); return nil })
	read(keyEnrolled, func(k string, _ []byte) error {
		enrolled = enrolled || k == ""
		return nil
	})
	read(keyRemoved, each(func(k string, at time.Time) error { h.removed[k] = at; return nil }))
	h.remember(o.Known)
	h.touch("")
	return h, enrolled, err
}

// numbered notes that a job has had a number, that is set aside or not: no other one gets it.
func (h *Head) numbered(id string) {
	if n, err := strconv.Atoi(id); err == nil {
		h.next = max(h.next, n)
	}
}

// readJob takes in a job of the store.
func (h *Head) readJob(id string, j *Job) error {
	if j == nil {
		return errors.New("it is empty")
	}
	if err := j.sound(id); err != nil {
		return err
	}
	h.epoch = max(h.epoch, j.Epoch)
	h.jobs[j.ID] = j
	return nil
}

// Input is something that has happened.
type Input interface{ apply(h *Head) }

// Step takes in what has happened at a time, and returns what is to be done.
func (h *Head) Step(now time.Time, in Input) []Effect {
	h.now = now.UTC()
	out := h.settle(in)
	switch a, ok := in.(asked); {
	case !h.over:
		in.apply(h)
		for h.due {
			h.due = false
			h.schedule()
		}
	case ok:
		out = append(out, Answer{Ask: a.ask(), Err: &Refusal{Late, lateText}})
	}
	if out = append(out, h.close()...); h.at != "" {
		h.touch("") // not where the step panics: its driver wants to know
	}
	return out
}

// settle takes in what the store has answered, which lets out what waited.
func (h *Head) settle(in Input) []Effect {
	switch in := in.(type) {
	case Stored:
		return h.stored(in.N)
	case Unstored:
		if h.commit == nil || h.commit.N != in.N {
			return nil
		}
		h.retry, h.unsure = h.timer(), true
		return []Effect{Stuck{in.Err}, Wake{h.retry, retryAfter}}
	case Over:
		return h.withdraw(in.Refused)
	case Elapsed:
		if in.Timer == h.retry && h.commit != nil {
			return []Effect{*h.commit}
		}
	}
	return nil
}

// Stored says that a commit is in the store.
type Stored struct{ N int64 }

// Unstored says that a commit has failed, or may have: it is repeated.
type Unstored struct {
	N   int64
	Err error
}

// Over says that the term has ended: what is not stored by now is withdrawn. Refused says that the store has
// refused the commit under way, as another head leads.
type Over struct{ Refused bool }

func (Stored) apply(*Head)   {}
func (Unstored) apply(*Head) {}
func (Over) apply(*Head)     {}

// Elapsed says that the time of a Wake has passed.
type Elapsed struct{ Timer int64 }

// apply acts on a timer that runs out: the host whose return it bounds is gone. A timer of nobody was given up.
func (in Elapsed) apply(h *Head) {
	if in.Timer == h.telling {
		h.telling = 0
		h.tellHosts()
		return
	}
	if a := h.agents[h.losing[in.Timer]]; a != nil && a.lost == in.Timer {
		h.gone(a)
	}
}

// timer is the number of a new one.
func (h *Head) timer() int64 {
	h.timers++
	return h.timers
}

// asked are inputs that are answered.
type asked interface{ ask() int64 }

// Sync asks for an answer when all that was decided before it is stored. What a driver has read of the head
// before may be told then.
type Sync struct{ Ask int64 }

func (in Sync) ask() int64    { return in.Ask }
func (in Sync) apply(h *Head) { h.say(Answer{Ask: in.Ask}) }

// Begin is the first input of a term, with what is to be said of it.
type Begin struct{ Text string }

// apply begins a term of leading. No agent is connected yet, and each gets time to come before its
// processes count as lost.
func (in Begin) apply(h *Head) {
	h.began = h.now
	h.setAside()
	h.settleRemoved()
	h.event(Event{Kind: "head", Text: in.Text})
	h.say(h.revocations())
	for _, a := range h.inOrder() {
		a.since = h.now
		h.lose(a, returning+time.Duration(max(0, len(h.agents)-few))*2*time.Millisecond, notBack)
		h.say(Revive{a.Name})
	}
	h.due = true
}

// Event is something that happened in the cluster, in one line with its cause.
type Event struct {
	N    int       `json:"n"`
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	Host string    `json:"host,omitempty"`
	Job  string    `json:"job,omitempty"`
	Text string    `json:"text" most:"1048576"`
}

// keepEvents bounds the log; the oldest are dropped.
const keepEvents = 10000

// event appends to the log. Its text is a person's, who may be allowed to look and no more; the kind a program's.
func (h *Head) event(e Event) {
	e.Time, e.N, e.Text = h.now, 1, Hide(e.Text)
	if n := len(h.events); n > 0 {
		e.N = h.events[n-1].N + 1
	}
	h.events = append(h.events, e)
	h.put(eventKey(e.N), e)
	if len(h.events) > keepEvents {
		h.write(eventKey(h.events[0].N), nil)
		h.events = h.events[1:]
	}
	h.say(Tell{e})
}

func eventKey(n int) string { return fmt.Sprintf("%s%012d", keyEvents, n) }

// Note is an event that the driver knows of.
type Note struct{ Event Event }

// apply enters an event that others observed, unless this head is ending.
func (in Note) apply(h *Head) {
	if !h.ending {
		h.event(in.Event)
	}
}

// Measured is what was measured of the ways between hosts.
type Measured struct{ Links []control.Link }

func (in Measured) apply(h *Head) { h.links = in.Links }

// Down ends the cluster: all agents with their processes. Files go with Code 1.
type Down struct {
	Ask  int64
	Code int
}

func (in Down) ask() int64 { return in.Ask }

// apply tells all agents to end, and answers with those that could be told.
func (in Down) apply(h *Head) {
	var told []string
	for _, a := range h.inOrder() {
		if h.order(a, control.Message{Kind: control.Quit, Code: in.Code}) {
			told = append(told, a.Name)
		}
	}
	h.ending = true
	h.say(Answer{Ask: in.Ask, Hosts: told})
}
