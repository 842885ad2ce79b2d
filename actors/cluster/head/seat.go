package head

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/trust"
	"github.com/lfactor/lfactor/topology/machine"
)

// Seat is one of the heads of a cluster.
type Seat struct {
	Name string `json:"name"`
	Addr string `json:"addr"` // that agents and commands connect to
	Peer string `json:"peer"` // at which the other heads reach its part of the store
}

// Seats are all heads of a cluster that has several, as each of them has the list in its directory.
type Seats struct {
	Self  string `json:"self"` // whose directory it is
	Heads []Seat `json:"heads"`
	// Joins is set for one that takes the place of a head whose directory was lost.
	Joins bool `json:"joins,omitempty"`
}

const seatsFile = "heads.json"

// Save writes the list to a head's directory.
func (s Seats) Save(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, seatsFile), text, 0o600)
}

// LoadSeats reads the list of a head's directory; a head that is alone has none.
func LoadSeats(dir string) (s Seats, err error) {
	text, err := os.ReadFile(filepath.Join(dir, seatsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", filepath.Join(dir, seatsFile), err)
	}
	if !slices.ContainsFunc(s.Heads, func(x Seat) bool { return x.Name == s.Self }) {
		return s, fmt.Errorf("%s: %q is not one of its heads", filepath.Join(dir, seatsFile), s.Self)
	}
	return s, nil
}

// Store are the options of the part of the store that is in a head's directory.
func (s Seats) Store(dir string) store.Options {
	o := store.Options{Dir: filepath.Join(dir, "store"), Log: filepath.Join(dir, "etcd.log"), Name: s.Self,
		Joins:    s.Joins,
		Identity: dir, Owner: trust.HeadName}
	for _, x := range s.Heads {
		o.Peers = append(o.Peers, store.Peer{Name: x.Name, Addr: x.Peer})
	}
	return o
}

// holder holds a seat: it leads the cluster while its part of the store leads the others, and follows the
// head that leads meanwhile.
type holder struct {
	o        Options
	id       *trust.Identity
	ca       *trust.CA
	local    LocalAgents
	seats    Seats
	self     Seat
	began    time.Time
	halfOpen halfOpen
	st       atomic.Pointer[store.Store]
	knocks   knocks
	leading  atomic.Pointer[Head]
	touched  *touched
	quit     chan struct{} // closed when a user ends the cluster
	ended    func()        // closes quit
}

// Run holds a seat until ctx ends or a user ends the cluster.
func Run(ctx context.Context, o Options) error {
	release, err := machine.LockDir("the head's directory", o.Dir)
	if err != nil {
		return err
	}
	defer release()
	s := &holder{o: o, began: time.Now(), quit: make(chan struct{})}
	s.ended = sync.OnceFunc(func() { close(s.quit) })
	files := machine.FileLimit()
	if err := EnoughFiles(files); err != nil {
		return err
	}
	s.halfOpen.log, s.halfOpen.files = o.logf, files
	s.halfOpen.room(0)
	s.knocks.log, s.knocks.now = o.logf, time.Now
	if err := s.load(); err != nil {
		return err
	}
	defer s.touched.end()
	go renewSelf(ctx, s.id, s.ca, time.Now, renewEvery, o.logf)
	if len(s.seats.Heads) == 0 { // what it knows is there before anybody asks
		st, err := s.open(ctx)
		if err != nil {
			return err
		}
		defer s.close(st)
	}
	ln, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("the head's port: %w; name other ports in hosts.yaml", err)
	}
	s.self.Addr = ln.Addr().String()
	server := s.server()
	served := make(chan error, 1)
	ln = &bounded{Listener: ln, most: max(0, files-filesKept), refuse: s.halfOpen.full}
	go func() { served <- server.ServeTLS(ln, "", "") }()
	defer server.Close()
	if s.st.Load() == nil { // meanwhile it says that it does not lead
		st, err := s.open(ctx)
		if err != nil {
			return err
		}
		defer s.close(st)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan error, 1)
	go func() { over <- s.hold(ctx) }()
	select {
	case <-ctx.Done():
	case <-s.quit:
	case err = <-served:
	case err = <-over:
		over <- nil
	case <-s.store().Failed():
		err = errors.New("the store has ended; it says why in " + filepath.Join(o.Dir, "etcd.log"))
	}
	stop, cancelStop := context.WithTimeout(context.Background(), time.Second)
	defer cancelStop()
	_ = server.Shutdown(stop) // streams of output do not end by themselves
	server.Close()
	cancel()
	return errors.Join(err, <-over)
}

// load reads what is in the head's directory beside the store.
func (s *holder) load() (err error) {
	if s.id, err = trust.Load(s.o.Dir, nil); err != nil {
		return err
	}
	if s.ca, err = trust.LoadCA(s.o.Dir); err != nil {
		return err
	}
	if s.local, err = loadLocal(s.o.Dir); err != nil {
		return err
	}
	if s.seats, err = LoadSeats(s.o.Dir); err != nil {
		return err
	}
	if err = os.MkdirAll(filepath.Join(s.o.Dir, "jobs"), 0o700); err != nil {
		return err
	}
	if s.touched, err = openTouched(s.o.Dir); err != nil {
		return err
	}
	s.self = Seat{Name: trust.HeadName, Addr: s.o.Listen}
	for _, x := range s.seats.Heads {
		if x.Name == s.seats.Self {
			s.self = x
		}
	}
	return nil
}

// open opens the store of this head's seat and makes it known to what else needs it.
func (s *holder) open(ctx context.Context) (store.Store, error) {
	o := s.seats.Store(s.o.Dir)
	o.Ended = ctx.Done()
	st, err := s.o.Open(o)
	if err == nil {
		s.st.Store(&st)
	}
	return st, err
}

// store is this head's part of the store, nil before it is open.
func (s *holder) store() store.Store {
	if st := s.st.Load(); st != nil {
		return *st
	}
	return nil
}

// close ends this head's part of the store.
func (s *holder) close(st store.Store) {
	select {
	case <-s.quit:
		st.CloseAll()
	default:
		st.Close()
	}
}

// look is how often a head looks who leads.
const look = 20 * time.Millisecond

// hold leads or follows, as the store has it.
func (s *holder) hold(ctx context.Context) error {
	st := s.store()
	for ctx.Err() == nil {
		if st.Leads() {
			if err := s.lead(ctx); err != nil {
				return err
			}
		} else {
			s.follow(ctx)
		}
	}
	return nil
}

// lead leads the cluster until ctx ends or another head does.
func (s *holder) lead(ctx context.Context) error {
	began, st := time.Now(), s.store()
	term, err := st.Lead(s.self.Name)
	if err != nil {
		if st.Leads() && ctx.Err() == nil {
			return err
		}
		return nil // it was another's turn meanwhile
	}
	defer term.End()
	term, err = newSealed(term, s.ca)
	if err != nil {
		return err
	}
	h := s.head(term)
	go h.write()
	defer func() {
		s.leading.Store(nil)
		term.End() // first, for what waits for the store is withdrawn then
		h.leave()
	}()
	if err := h.restore(); err != nil {
		if errors.Is(err, store.ErrOver) || !st.Leads() || ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("the cluster's state: %w", err)
	}
	h.step(decide.Begin{Text: h.announce(began)})
	go s.watch(h, time.Second)
	s.leading.Store(h)
	if err := s.up(); err != nil {
		return err
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	for st.Leads() {
		select {
		case <-ctx.Done():
			return nil
		case <-term.Over():
			return nil
		case <-tick.C:
		}
	}
	s.o.logf("%s leads no more", s.self.Name)
	return nil
}

// head is a head for a term, which knows nothing yet.
func (s *holder) head(term store.Term) *Head {
	h := &Head{o: s.o, began: s.began, ended: s.ended, id: s.id, ca: s.ca, local: s.local, term: term,
		self: s.self, seats: s.seats.Heads, halfOpen: &s.halfOpen, knocks: &s.knocks,
		commits: make(chan decide.Commit, 1), left: make(chan struct{}), links: map[int64]*link{},
		touched: s.touched, audit: auditIn(s.o.Dir),
		asks: map[int64]chan decide.Answer{}, revived: map[string]time.Time{}, outputs: map[string]*written{},
		wrote: map[procKey]int64{}, questions: map[int]*question{},
		probed: map[int]chan []control.Link{}, others: map[string]*other{}}
	h.heard = sync.NewCond(&h.mu)
	h.routes(&h.mux)
	return h
}

// announce says that this head leads.
func (h *Head) announce(began time.Time) string {
	if len(h.seats) == 0 {
		return fmt.Sprintf("head up at %s as pid %d, its state read in %v", h.self.Addr, os.Getpid(),
			time.Since(h.began).Round(time.Millisecond))
	}
	return fmt.Sprintf("%s leads, at %s as pid %d, its state read in %v", h.self.Name, h.self.Addr, os.Getpid(),
		time.Since(began).Round(time.Millisecond))
}

// up tells whoever has started this head that it serves.
func (s *holder) up() error {
	return os.WriteFile(filepath.Join(s.o.Dir, control.UpFile), []byte(strconv.Itoa(os.Getpid())), 0o600)
}

// server answers agents and commands.
func (s *holder) server() *http.Server {
	conf := s.id.Open(trust.Agent, trust.Admin, trust.Submit, trust.View, trust.Head)
	return &http.Server{Handler: s, TLSConfig: conf, ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: 16 << 10, IdleTimeout: 2 * time.Minute, ConnState: s.halfOpen.state,
		TLSNextProto: nil, ErrorLog: quietLog(s.o.Log)}
}

// ServeHTTP implements http.Handler: a head that does not lead says which one does.
func (s *holder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer s.guard(r)
	if h := s.leading.Load(); h != nil {
		h.mux.ServeHTTP(w, r)
		return
	}
	if len(r.TLS.PeerCertificates) > 0 || r.URL.Path == "/v1/join" {
		if lead, ok := s.leader(); ok {
			w.Header().Set(control.LeaderHeader, lead.Addr)
		}
	}
	w.Header().Set("Connection", "close")
	http.Error(w, s.self.Name+" does not lead the cluster", http.StatusMisdirectedRequest)
}

// leader is the seat of the head that leads, if one does.
func (s *holder) leader() (Seat, bool) {
	st := s.store()
	if st == nil {
		return Seat{}, false
	}
	name := st.Leader()
	i := slices.IndexFunc(s.seats.Heads, func(x Seat) bool { return x.Name == name })
	if i < 0 {
		return Seat{}, false
	}
	return s.seats.Heads[i], true
}
