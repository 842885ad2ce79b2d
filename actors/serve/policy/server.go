package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/lfactor/lfactor/actors/serve"
	"github.com/lfactor/lfactor/stages/policies"
	"github.com/lfactor/lfactor/stages/trained"
)

// Options say how a policy is served. A zero takes what stands behind it.
type Options struct {
	Name     string // of the policy
	Token    string // that clients are to show, "" for none
	Prompt   string // of observations that say none
	Encoders string // folder of a pipeline whose encoders a policy with a clip reads by; "" for those it names
	Robot    string // data set as whose robot the policy acts; "" for the first
	Replicas int    // policies, each with weights of its own; 1
	Batch    int    // observations that a replica answers at once; 8
	Queue    int    // observations that may wait; 64
	Clients  int    // connections at once; 64
	Steps    int    // from noise to actions; the policy's own, or 10 of Euler

	Deadline time.Duration // of an observation, waiting included; 10 s
	Idle     time.Duration // between observations of a connection; 10 minutes
	Slow     time.Duration // that a message may take to come, and an answer to be read; 10 s
	Pause    time.Duration // before a connection goes on whose message was refused; 20 ms
	Message  int64         // bytes of a message; 16 MiB

	Notes io.Writer // of what the policy does not read of prompts; nil for none

	Horizon int     // actions over which chunks are joined; trained.JoinHorizon
	Strong  float64 // how strongly they are; trained.JoinMost
}

// Usual fills in what is zero.
func (o Options) Usual() Options {
	for _, x := range []struct {
		to *int
		n  int
	}{{&o.Replicas, 1}, {&o.Batch, 8}, {&o.Queue, 64}, {&o.Clients, 64}, {&o.Horizon, policies.JoinHorizon}} {
		if *x.to == 0 {
			*x.to = x.n
		}
	}
	for _, x := range []struct {
		to *time.Duration
		d  time.Duration
	}{{&o.Deadline, 10 * time.Second}, {&o.Idle, 10 * time.Minute}, {&o.Slow, 10 * time.Second},
		{&o.Pause, 20 * time.Millisecond}} {
		if *x.to == 0 {
			*x.to = x.d
		}
	}
	if o.Message == 0 {
		o.Message = 16 << 20
	}
	if o.Strong == 0 {
		o.Strong = policies.JoinMost
	}
	return o
}

// Check reports what no server can have.
func (o Options) Check() error {
	for _, x := range []struct {
		name string
		n    int64
	}{{"replicas", int64(o.Replicas)}, {"batch", int64(o.Batch)}, {"clients", int64(o.Clients)},
		{"message-bytes", o.Message}, {"slow", int64(o.Slow)}, {"join", int64(o.Horizon)}} {
		if x.n < 1 {
			return fmt.Errorf("--%s is %d, and not above 0", x.name, x.n)
		}
	}
	if o.Steps < 0 {
		return fmt.Errorf("--denoise-steps is %d, and not above 0", o.Steps)
	}
	return nil
}

// Policy is what is served: *trained.Actor is.
type Policy interface {
	Acting
	Abilities() policies.Abilities
	// Ask prepares what a robot sees; many goroutines may ask at once.
	Ask(policies.Seen) (policies.Ask, error)
}

// Server is a served policy: an http.Handler whose websockets speak openpi's protocol.
type Server struct {
	o       Options
	p       Policy // that prepares observations
	keys    Keys
	can     policies.Abilities
	r       *replicas
	seen    *latencies
	slots   chan struct{} // a connection has one
	ctx     context.Context
	end     context.CancelFunc
	robots  sync.WaitGroup
	actors  []*policies.Actor
	seeds   atomic.Uint64
	mux     *http.ServeMux
	now     func() time.Time
	greeted []byte // what the server says first
}

// New opens the replicas of a policy. The model stays the caller's to close, after the server.
func New(m *trained.Trained, o Options) (*Server, error) {
	o = o.Usual()
	if o.Encoders != "" {
		if err := policies.Encode(m, o.Encoders); err != nil {
			return nil, fmt.Errorf("--encoders: %w", err)
		}
	}
	var actors []*policies.Actor
	var all []Policy
	for range o.Replicas {
		a, err := policies.NewActor(m)
		if err == nil && o.Robot != "" {
			if err = a.As(o.Robot); err != nil {
				a.Close()
			}
		}
		if err != nil {
			for _, a := range actors {
				a.Close()
			}
			return nil, err
		}
		if o.Steps > 0 {
			a.Steps = o.Steps
		}
		if o.Notes != nil && len(actors) == 0 { // it prepares all observations
			a.Tell(o.Notes)
		}
		actors, all = append(actors, a), append(all, a)
	}
	s := newServer(all, o)
	s.actors = actors
	return s, nil
}

// newServer serves replicas of a policy.
func newServer(all []Policy, o Options) *Server {
	o = o.Usual()
	s := &Server{o: o, p: all[0], can: all[0].Abilities(), seen: newLatencies(), now: time.Now,
		slots: make(chan struct{}, o.Clients), mux: http.NewServeMux()}
	s.keys = Keys{State: s.can.State, Cameras: s.can.Cameras, Steps: s.can.Steps, All: s.can.All}
	s.ctx, s.end = context.WithCancel(context.Background())
	acting := make([]Acting, len(all))
	for i, p := range all {
		acting[i] = p
	}
	s.r = newReplicas(acting, o.Queue, o.Batch, s.now, s.seen)
	s.greeted = Pack(nil, s.about())
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("OK\n")) // whoever has gone away needs none
	})
	s.mux.HandleFunc("GET /metrics", s.guarded(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		s.seen.export(w, int(s.r.waiting.Load()))
	}))
	s.mux.HandleFunc("/", s.guarded(s.robot))
	return s
}

// about is the metadata that a client is told first.
func (s *Server) about() []Pair {
	cameras := []string{}
	for _, c := range s.keys.Cameras {
		cameras = append(cameras, policies.Column(c))
	}
	return []Pair{{"server", "lfactor"}, {"model", s.o.Name}, {"state_key", policies.Column(s.keys.State)},
		{"state_dim", s.can.Numbers}, {"observation_steps", s.can.Steps}, {"image_keys", cameras}, {"image_size", []int{s.can.Size[0], s.can.Size[1]}},
		{"action_horizon", s.can.Chunk}, {"action_dim", s.can.Width}, {"keys", s.keys.names()},
		{"joined_actions", min(s.o.Horizon, s.can.Chunk)}}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends all connections, and the replicas behind what they compute.
func (s *Server) Close() {
	s.end()
	s.r.Close()
	s.robots.Wait()
	for _, a := range s.actors {
		a.Close()
	}
	s.actors = nil
}

// Summary says what was done until now.
func (s *Server) Summary() Summary { return s.seen.summary() }

// guarded lets clients in that show the token, as openpi's client does (Api-Key) or as a bearer's.
func (s *Server) guarded(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !serve.Shows(r, s.o.Token, "Api-Key ", "Bearer ") {
			http.Error(w, "the API key is missing or wrong", http.StatusUnauthorized)
			return
		}
		f(w, r)
	}
}

// robot serves one connection.
func (s *Server) robot(w http.ResponseWriter, r *http.Request) {
	select {
	case s.slots <- struct{}{}:
	default:
		s.seen.turned.Add(1)
		http.Error(w, "as many robots are connected as may be", http.StatusServiceUnavailable)
		return
	}
	defer func() { <-s.slots }()
	s.robots.Add(1)
	defer s.robots.Done()
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // it has answered: the request is no websocket's
	}
	defer c.CloseNow() //nolint:errcheck // it is closed already, or dropped
	s.seen.connections.Add(1)
	defer s.seen.connections.Add(-1)
	c.SetReadLimit(s.o.Message)
	t := &talk{s: s, c: c}
	if err := t.serve(s.ctx); err != nil && !gone(err) {
		s.seen.dropped.Add(1)
	}
}

// gone reports whether a client left, or the server ends: nobody is to blame.
func gone(err error) bool {
	code := websocket.CloseStatus(err)
	return code == websocket.StatusNormalClosure || code == websocket.StatusGoingAway || errors.Is(err, errClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
