package head

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/topology/machine"
)

// Options are a head's.
type Options struct {
	Dir     string   // of its identity, the authority's key, the store, and what jobs write
	Command []string // that is lfactor, for agents of this machine that have ended
	Listen  string   // address that agents and commands connect to
	Binary  string   // hash of this program, which agents must have too
	Version string
	Log     io.Writer
	// Crash ends the process after a panic of a handler; nil panics where nobody recovers.
	Crash func(v any)
	// Open opens this head's part of the store.
	Open func(store.Options) (store.Store, error)
}

// What a head decides about, by the names that it has for its users.
type (
	// Job is a job as the store knows it.
	Job = decide.Job
	// State is a job's.
	State = decide.State
	// Proc is a process of a job.
	Proc = decide.Proc
	// Event is something that happened in the cluster, in one line with its cause.
	Event = decide.Event
	// Member is a host as the store knows it.
	Member = decide.Member
	// Host is a host as status tells of it.
	Host = decide.Host
)

// The states of a job.
const (
	Queued  = decide.Queued
	Running = decide.Running
	Ended   = decide.Ended
)

// Head serves what package decide decides, in one term: it carries messages in and effects out. One lock
// guards the machine and what belongs to it; nothing waits under it.
type Head struct {
	o     Options
	id    *trust.Identity
	ca    *trust.CA
	term  store.Term
	began time.Time
	self  Seat
	local LocalAgents
	ended func() // is called when a user ends the cluster
	audit *audit
	// touched says what is worked on; nil where nobody asks
	touched *touched
	mux     http.ServeMux

	mu        sync.Mutex
	m         *decide.Head
	commits   chan decide.Commit // to the one goroutine that writes
	left      chan struct{}      // closed when the term has ended
	gone      bool               // that it is closed
	stuck     error              // why the store does not take the commit under way; nil where it does
	numbers   int64              // of connections and questions that were given out
	links     map[int64]*link
	asks      map[int64]chan decide.Answer
	heard     *sync.Cond                  // signals that events or a job's output have grown
	revived   map[string]time.Time        // when an agent of this machine was started again
	outputs   map[string]*written         // what jobs have written
	wrote     map[procKey]int64           // how far the output of processes has come
	round     int                         // of measuring and asking
	probed    map[int]chan []control.Link // measurements that are waited for, by their rounds
	questions map[int]*question
	checking  sync.Mutex // one check at a time
	halfOpen  *halfOpen
	knocks    *knocks
	seats     []Seat            // all heads
	others    map[string]*other // heads that follow this one, by name
}

// link is a connection with an agent.
type link struct {
	c    *control.Conn
	more time.Duration // between beats, since there are so many hosts
	mu   sync.Mutex
	// what waits to be sent: a list that grows, since room for thousands of messages at each of a thousand
	// agents would be most of a head's memory
	queue []control.Message
	wake  chan struct{} // told of a message
}

func newLink(c *control.Conn) *link { return &link{c: c, wake: make(chan struct{}, 1)} }

func (h *Head) logf(format string, args ...any) { h.o.logf(format, args...) }

func (o *Options) logf(format string, args ...any) {
	fmt.Fprintf(o.Log, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}

// step tells the machine what has happened, and does what it says.
func (h *Head) step(in decide.Input) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stepLocked(in)
}

// stepLocked gives the machine one input and carries out what it decides, in order. The lock must be held.
func (h *Head) stepLocked(in decide.Input) {
	for _, e := range h.m.Step(time.Now(), in) {
		h.carryOut(e)
	}
}

// carryOut does what the machine says; nothing here waits.
func (h *Head) carryOut(e decide.Effect) {
	switch e := e.(type) {
	case decide.Commit:
		h.commits <- e // there is one at a time, and room for it
	case decide.Send:
		if l := h.links[e.Conn]; l != nil {
			l.order(e.M)
		}
	case decide.Close:
		if l := h.links[e.Conn]; l != nil {
			l.c.Close()
		}
	case decide.Answer:
		if c := h.asks[e.Ask]; c != nil {
			c <- e
			delete(h.asks, e.Ask)
		}
	case decide.Wake:
		time.AfterFunc(e.After, func() { h.step(decide.Elapsed{Timer: e.Timer}) })
	case decide.Revive:
		go h.revive(e.Host)
	case decide.Revoked:
		if err := errors.Join(h.id.Revoke(e.Serials), keepRemoved(h.o.Dir, e.Removed)); err != nil {
			h.logf("! the list of revoked certificates: %v", err)
		}
	case decide.Tell:
		h.logf("%s %s", e.Event.Kind, e.Event.Text)
		h.heard.Broadcast()
	case decide.Stuck:
		if h.stuck == nil {
			h.logf("! the store does not take what was decided, which waits: %v", e.Err)
		}
		h.stuck = e.Err
	}
}

// write makes the machine's commits, one after the other, until the term ends.
func (h *Head) write() {
	for {
		select {
		case <-h.left:
			return
		case c := <-h.commits:
			_, err := h.term.Commit(c.Ops)
			switch {
			case err == nil:
				h.mu.Lock()
				if h.stuck != nil {
					h.stuck = nil
					h.logf("the store takes what was decided again")
				}
				h.stepLocked(decide.Stored{N: c.N})
				h.mu.Unlock()
			case errors.Is(err, store.ErrOver):
				h.step(decide.Over{Refused: true})
			default:
				h.step(decide.Unstored{N: c.N, Err: err})
			}
		}
	}
}

// answerLimit is how long a request waits for the store.
const answerLimit = 15 * time.Second

// ask asks the machine and waits until its answer is stored, or tells why there is none.
func (h *Head) ask(ctx context.Context, in func(ask int64) decide.Input) (decide.Answer, error) {
	h.mu.Lock()
	h.numbers++
	n, c := h.numbers, make(chan decide.Answer, 1)
	h.asks[n] = c
	h.stepLocked(in(n))
	h.mu.Unlock()
	return h.await(ctx, n, c)
}

// await waits for the answer to request n, but not for ever: a store that takes nothing must not
// hang the user. The error then says that the request may still happen.
func (h *Head) await(ctx context.Context, n int64, c chan decide.Answer) (decide.Answer, error) {
	limit := time.NewTimer(answerLimit)
	defer limit.Stop()
	var err error
	select {
	case a := <-c:
		return a, a.Err
	case <-ctx.Done():
		err = ctx.Err()
	case <-h.left:
		err = &decide.Refusal{Cause: decide.Late, Text: "this head leads the cluster no more"}
	case <-limit.C:
		h.mu.Lock()
		err = fmt.Errorf("the store takes nothing for %v (%v): what was asked for happens when it does, or not "+
			"at all; look at the disk of the head %s", answerLimit, h.stuck, h.self.Name)
		h.mu.Unlock()
	}
	h.mu.Lock()
	delete(h.asks, n)
	h.mu.Unlock()
	select {
	case a := <-c: // it came meanwhile
		return a, a.Err
	default:
		return decide.Answer{}, err
	}
}

// look reads the machine, and returns when what was read is stored.
func (h *Head) look(ctx context.Context, see func(m *decide.Head)) error {
	_, err := h.ask(ctx, func(n int64) decide.Input {
		see(h.m)
		return decide.Sync{Ask: n}
	})
	return err
}

// event is one that happens here and not in the machine.
func (h *Head) event(e Event) { h.step(decide.Note{Event: e}) }

// leave ends the term: what is not stored is withdrawn, and connections are dropped.
func (h *Head) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m != nil {
		h.stepLocked(decide.Over{})
	}
	h.gone = true
	close(h.left)
	h.heard.Broadcast()
	for _, l := range h.links {
		l.c.Close()
	}
	for _, o := range h.others {
		if o.conn != nil {
			o.conn.Close()
		}
	}
}

// restore reads what the heads before this one have stored.
func (h *Head) restore() error {
	o := decide.Options{Term: h.term.Number(), Binary: h.o.Binary, Version: h.o.Version, Fill: machine.Fillable}
	if h.touched != nil {
		o.Aside, o.Touch = h.touched.aside(), h.touched.touch
	}
	if h.id != nil {
		o.Known = decide.Revoked{Serials: h.id.Gone(), Removed: knownRemoved(h.o.Dir)}
	}
	m, enrolled, err := decide.Load(o, h.term)
	if err != nil {
		return err
	}
	h.m = m
	for _, j := range m.Jobs() {
		size, err := h.readWritten(j.ID)
		if err != nil {
			return err
		}
		h.outputs[j.ID] = &written{size: size}
	}
	h.stepLocked(decide.Measured{Links: knownLinks(h.o.Dir)})
	if err := h.enroll(enrolled); err != nil {
		return err
	}
	if h.halfOpen != nil { // all may come back at once
		h.halfOpen.room(m.Members())
	}
	return nil
}

// members is how many hosts the cluster has.
func (h *Head) members() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.m.Members()
}

// allow lets through whoever's certificate has one of these roles.
func (h *Head) allow(f http.HandlerFunc, roles ...trust.Role) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.Header().Set("Connection", "close") // nobody keeps a connection of the head's without one
			http.Error(w, "a certificate of this cluster is wanted", http.StatusUnauthorized)
			return
		}
		// a connection outlives what it was opened with
		ended := time.Now().After(r.TLS.PeerCertificates[0].NotAfter) && r.URL.Path != agentPath // which sees to that itself
		if h.id.Revoked(r.TLS.PeerCertificates[0]) || ended {
			w.Header().Set("Connection", "close")
			http.Error(w, "the certificate was revoked, or has ended", http.StatusUnauthorized)
			return
		}
		who, err := trust.Owner(r.TLS.PeerCertificates[0])
		if err == nil {
			err = fmt.Errorf("%s has the role %s; this wants %s", who.Name, who.Role, words(roles))
			for _, role := range roles {
				if who.Role == role {
					h.audited(w, r, who, f)
					return
				}
			}
			h.audited(w, r, who, nil)
		}
		http.Error(w, err.Error(), http.StatusForbidden)
	}
}

// words joins roles for an error.
func words(roles []trust.Role) string {
	var out []string
	for _, r := range roles {
		out = append(out, string(r))
	}
	return strings.Join(out, " or ")
}
