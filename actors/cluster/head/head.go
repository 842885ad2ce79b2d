package head

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// Options are a head's.
type Options struct {
	Dir     string   // of its identity, the authority's key, the store, and what jobs write
	Command []string // that is lfactor, for agents of this machine that have ended
	Listen  string   // address that agents and commands connect to
	Binary  string   // hash of this program, which agents must have too
	Version string
	Log     io.Writer
}

// Head leads the cluster, from the beginning of its term to the end. One lock guards its state; writes to
// the store are made under it, so that the store has things in the order in which they happened, and
// messages to agents are only queued under it.
type Head struct {
	o     Options
	id    *trust.Identity
	ca    *trust.CA
	st    *store.Term
	began time.Time
	self  Seat
	local LocalAgents

	mu        sync.Mutex
	agents    map[string]*agent
	jobs      map[string]*job
	next      int // number of the next job
	events    []Event
	heard     *sync.Cond // signals that events or a job's output have grown
	revoked   []string
	ended     func() // is called when a user ends the cluster
	mux       http.ServeMux
	revived   map[string]time.Time // when an agent of this machine was started again
	links     []control.Link       // as they were measured last
	round     int                  // of measuring
	probed    chan []control.Link
	questions map[int]*question
	checking  sync.Mutex // one check at a time
	ending    bool
	halfOpen  *halfOpen
	seats     []Seat            // all heads
	others    map[string]*other // heads that follow this one, by name
	wrote     map[procKey]int64 // how far the output of processes has come
}

// agent is a host of the cluster, whether it is connected or not.
type agent struct {
	Member
	info    control.Info
	conn    *control.Conn // nil while it is away
	quiet   bool          // it is connected and suspect, since it says nothing
	since   time.Time     // connected or away since
	lost    *time.Timer   // runs while it is away
	skew    time.Duration // of its clock against the head's
	send    chan control.Message
	leaving bool // it ends when it has no process any more
}

// Member is a host as the store knows it.
type Member struct {
	Name    string    `json:"name"`
	Joined  time.Time `json:"joined"`
	Serial  string    `json:"serial"` // of its certificate
	Drained bool      `json:"drained,omitempty"`
}

// Graces. An agent that is back within grace was never away for its processes; all are, at a new head,
// within returning.
const (
	grace     = 400 * time.Millisecond
	returning = 3 * time.Second
)

// Keys of the store.
const (
	keyMembers = "members/"
	keyJobs    = "jobs/"
	keyEvents  = "events/"
	keyTokens  = "tokens/"
	keyRevoked = "revoked/"
	// keyEnrolled says that the first members have been taken.
	keyEnrolled = "enrolled"
)

func (h *Head) logf(format string, args ...any) { h.o.logf(format, args...) }

func (o *Options) logf(format string, args ...any) {
	fmt.Fprintf(o.Log, time.Now().Format("15:04:05.000 ")+format+"\n", args...)
}

// leave drops the connections of the agents.
func (h *Head) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ending = true
	h.heard.Broadcast()
	for _, a := range h.agents {
		if a.conn != nil {
			a.conn.Close()
		}
	}
	for _, o := range h.others {
		if o.conn != nil {
			o.conn.Close()
		}
	}
}

// restore reads what the head before this one knew. Agents connect again by themselves; those that do
// not within the grace are lost, as their processes are.
func (h *Head) restore() error {
	err := h.st.List(keyMembers, func(_ string, v []byte) error {
		a := &agent{since: time.Now()}
		if err := json.Unmarshal(v, &a.Member); err != nil {
			return err
		}
		h.agents[a.Name] = a
		return nil
	})
	if err != nil {
		return err
	}
	if err := h.st.List(keyRevoked, func(k string, _ []byte) error {
		h.revoked = append(h.revoked,
			k)
		return nil
	}); err != nil {
		return err
	}
	if err := h.id.Revoke(h.revoked); err != nil {
		return err
	}
	if err := h.st.List(keyEvents, func(_ string, v []byte) error {
		var e Event
		err := json.Unmarshal(v, &e)
		h.events = append(h.events, e)
		return err
	}); err != nil {
		return err
	}
	h.links = knownLinks(h.o.Dir)
	if err := h.restoreJobs(); err != nil {
		return err
	}
	for _, a := range h.agents {
		a.lost = time.AfterFunc(returning, func() { h.gone(a, "it did not come back to the new head") })
		go h.revive(a.Name)
	}
	return nil
}

// Event is something that happened in the cluster, in one line with its cause.
type Event struct {
	N    int       `json:"n"`
	Time time.Time `json:"time"`
	Kind string    `json:"kind"`
	Host string    `json:"host,omitempty"`
	Job  string    `json:"job,omitempty"`
	Text string    `json:"text"`
}

// keepEvents bounds the log; the oldest are dropped.
const keepEvents = 10000

// event appends to the log. Its text is a person's; the kind a program's.
func (h *Head) event(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.eventLocked(e)
}

func (h *Head) eventLocked(e Event) {
	e.Time = time.Now().UTC()
	if n := len(h.events); n > 0 {
		e.N = h.events[n-1].N + 1
	} else {
		e.N = 1
	}
	h.events = append(h.events, e)
	h.logf("%s %s", e.Kind, e.Text)
	if _, err := h.st.Put(fmt.Sprintf("%s%012d", keyEvents, e.N), e); err != nil {
		h.logf("! the event is not in the store: %v", err)
	}
	if len(h.events) > keepEvents {
		// the next event tries the next one
		_ = h.st.Delete(fmt.Sprintf("%s%012d", keyEvents, h.events[0].N))
		h.events = h.events[1:]
	}
	h.heard.Broadcast()
}

// allow lets through whoever's certificate has one of these roles.
func (h *Head) allow(f http.HandlerFunc, roles ...trust.Role) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) == 0 {
			w.Header().Set("Connection", "close") // nobody keeps a connection of the head's without one
			http.Error(w, "a certificate of this cluster is wanted", http.StatusUnauthorized)
			return
		}
		who, err := trust.Owner(r.TLS.PeerCertificates[0])
		if err == nil {
			err = fmt.Errorf("%s has the role %s; this wants %s", who.Name, who.Role, words(roles))
			for _, role := range roles {
				if who.Role == role {
					f(w, r)
					return
				}
			}
		}
		http.Error(w, err.Error(), http.StatusForbidden)
	}
}

func words(roles []trust.Role) string {
	var out []string
	for _, r := range roles {
		out = append(out, string(r))
	}
	return strings.Join(out, " or ")
}
