package serve

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/actors/serve/queue"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/tenants"
	"github.com/lfactor/lfactor/stages/trained"
)

// TrainOptions say what adapters clients may train.
type TrainOptions struct {
	Adapters int     // at once
	Rank     int     // of each
	Alpha    float64 // y = W x + alpha/rank B A x
	Targets  []string
	Rows     int    // tokens of a sequence at most, and of a piece of work
	Most     int    // tokens of a microbatch of several adapters
	Dir      string // of saved adapters; "" refuses to save
	Waiting  int    // calls of one adapter that may wait
}

// tenant is an adapter with whoever trains it.
type tenant struct {
	name string
	key  string
	slot int // counted from 0
	// gate lets answers of the adapter go on together, and whatever changes its weights alone.
	gate gate
	turn gate // one call that trains at a time, in the order in which they came
}

// tenantry are the adapters of a server. Its methods are safe for concurrent use, also of none.
type tenantry struct {
	o     TrainOptions
	slots *trained.Slots
	work  *adapterTraining
	mu    sync.Mutex
	by    map[string]*tenant
}

func newTenantry(m *trained.Trained, o Options) (*tenantry, error) {
	if m.Model.Vision != nil {
		return nil, errors.New("adapters of models that see are not served: leave --train away")
	}
	t := &tenantry{o: *o.Train, by: map[string]*tenant{}}
	if t.o.Waiting == 0 {
		t.o.Waiting = 16
	}
	lora := &block.Lora{Targets: t.o.Targets, Rank: t.o.Rank, Alpha: t.o.Alpha, Slots: t.o.Adapters}
	var err error
	if t.slots, err = m.Slots(lora, t.o.Rows, t.o.Most, o.Engine); err != nil {
		return nil, err
	}
	t.work = &adapterTraining{trainer: t.slots.Trainer}
	return t, nil
}

func (t *tenantry) adapterTraining() *adapterTraining {
	if t == nil {
		return nil
	}
	return t.work
}

func (t *tenantry) find(name string) *tenant {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.by[name]
}

// list are the adapters by their names.
func (t *tenantry) list() (out []*tenant) {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, x := range t.by {
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b *tenant) int { return strings.Compare(a.name, b.name) })
	return out
}

// keyHeader has the key that an adapter was made with.
const keyHeader = "X-Adapter-Key"

// shows refuses clients that do not show an adapter's key.
func (x *tenant) shows(r *http.Request) error {
	if subtle.ConstantTimeCompare([]byte(r.Header.Get(keyHeader)), []byte(x.key)) != 1 && x.key != "" {
		return locked(fmt.Sprintf("the adapter %q wants its key in the header %s", x.name, keyHeader))
	}
	return nil
}

// draw readies answers of an adapter, and gives its slot, counted from 1: 0 for the model alone.
// leave says that they have ended.
func (t *tenantry) draw(ctx context.Context, r *http.Request, name string) (slot int, leave func(), err error) {
	x := t.find(name)
	if x == nil {
		return 0, func() {}, nil
	}
	if err := x.shows(r); err != nil {
		return 0, nil, err
	}
	if err := x.gate.enter(ctx, false); err != nil {
		return 0, nil, err
	}
	if t.find(name) != x { // removed meanwhile
		x.gate.leave(false)
		return 0, nil, unknown(name)
	}
	return x.slot + 1, func() { x.gate.leave(false) }, nil
}

func unknown(name string) error {
	return fault{http.StatusNotFound, "invalid_request_error", fmt.Sprintf("there is no adapter %q", name), "",
		"adapter_not_found"}
}

var names = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// trainable declares the paths of adapters.
func (s *Server) trainable() {
	if s.tenants == nil {
		return
	}
	s.mux.HandleFunc("POST /v1/adapters", s.guarded(s.create))
	s.mux.HandleFunc("GET /v1/adapters", s.guarded(s.adapters))
	for name, f := range map[string]func(ctx context.Context, x *tenant, w http.ResponseWriter,
		r *http.Request) (any, error){"POST /v1/adapters/{name}/forward_backward": s.forwardBackward,
		"POST /v1/adapters/{name}/forward": s.forward, "POST /v1/adapters/{name}/optim_step": s.optimStep,
		"POST /v1/adapters/{name}/save": s.save, "POST /v1/adapters/{name}/load": s.load,
		"DELETE /v1/adapters/{name}": s.remove} {
		s.mux.HandleFunc(name, s.guarded(func(w http.ResponseWriter, r *http.Request) {
			s.trained(w, r, f)
		}))
	}
}

// trained carries out a call of an adapter, behind those that came before it.
func (s *Server) trained(w http.ResponseWriter, r *http.Request,
	f func(ctx context.Context, x *tenant, w http.ResponseWriter, r *http.Request) (any, error)) {
	s.counted.requests.Add(1)
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Deadline)
	defer cancel()
	name := r.PathValue("name")
	x := s.tenants.find(name)
	err := unknown(name)
	if x != nil {
		err = x.shows(r)
	}
	if err == nil && x.turn.waiting() >= s.tenants.o.Waiting {
		err = queue.ErrFull
	}
	if err == nil {
		err = x.turn.enter(ctx, true)
	}
	if err != nil {
		s.fail(w, s.refusal(err))
		return
	}
	defer x.turn.leave(true)
	if s.tenants.find(name) != x {
		s.fail(w, unknown(name))
		return
	}
	v, err := f(ctx, x, w, r)
	if err != nil {
		s.fail(w, s.refusal(err))
		return
	}
	answer(w, http.StatusOK, v)
}

// create answers POST /v1/adapters.
func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), s.o.Deadline)
	defer cancel()
	b := struct {
		Name string `json:"name"`
		Seed uint64 `json:"seed"`
		Key  string `json:"key"`
	}{}
	err := s.read(w, r, &b)
	if err == nil && (!names.MatchString(b.Name) || b.Name == s.o.Name) {
		err = bad("name", "the name is %.70q: it is to begin with a letter or a digit, to have these, dots, lines and "+
			"underlines, 64 at most, and not to be the model's", b.Name)
	}
	if err == nil {
		err = s.tenants.o.opens(b.Name, b.Key)
	}
	x := &tenant{name: b.Name, key: b.Key}
	if err == nil {
		err = s.begin(ctx, x, b.Seed)
	}
	if err != nil {
		s.fail(w, s.refusal(err))
		return
	}
	answer(w, http.StatusCreated, s.describe(x))
}

// begin gives a tenant a slot. Calls of it wait until what was in the slot before is gone.
func (s *Server) begin(ctx context.Context, x *tenant, seed uint64) error {
	t := s.tenants
	for _, g := range []*gate{&x.turn, &x.gate} { // nobody has them yet
		if err := g.enter(ctx, true); err != nil {
			return err
		}
		defer g.leave(true)
	}
	if err := t.enter(x); err != nil {
		return err
	}
	err := s.loop().do(ctx, func() {
		t.slots.Trainer.Begin(x.slot, seed)
		t.slots.Engine.Changed(x.slot + 1)
	})
	if err != nil {
		t.leave(x)
	}
	return err
}

// enter finds a slot for a tenant.
func (t *tenantry) enter(x *tenant) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by[x.name] != nil {
		return fault{http.StatusConflict, "invalid_request_error", fmt.Sprintf("there is an adapter %q", x.name),
			"name", "adapter_exists"}
	}
	used := make([]bool, t.o.Adapters)
	for _, y := range t.by {
		used[y.slot] = true
	}
	if x.slot = slices.Index(used, false); x.slot < 0 {
		return fault{http.StatusTooManyRequests, "rate_limit_error",
			fmt.Sprintf("there are %d adapters, and no more have room", t.o.Adapters), "", "adapters_full"}
	}
	t.by[x.name] = x
	return nil
}

// leave gives a tenant's slot back.
func (t *tenantry) leave(x *tenant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.by, x.name)
}

// describe is an adapter as clients see it.
func (s *Server) describe(x *tenant) any {
	o := s.tenants.o
	return map[string]any{"name": x.name, "base": s.o.Name, "rank": o.Rank, "alpha": o.Alpha, "targets": o.Targets,
		"max_tokens": o.Rows}
}

// adapters answers GET /v1/adapters.
func (s *Server) adapters(w http.ResponseWriter, _ *http.Request) {
	all := []any{}
	for _, x := range s.tenants.list() {
		all = append(all, s.describe(x))
	}
	answer(w, http.StatusOK, map[string]any{"data": all, "room": s.tenants.o.Adapters - len(all)})
}

func (s *Server) forwardBackward(ctx context.Context, x *tenant, w http.ResponseWriter, r *http.Request) (any, error) {
	return s.compute(ctx, x, w, r, true)
}

func (s *Server) forward(ctx context.Context, x *tenant, w http.ResponseWriter, r *http.Request) (any, error) {
	return s.compute(ctx, x, w, r, false)
}

// compute has work done, with that of others.
func (s *Server) compute(ctx context.Context, x *tenant, w http.ResponseWriter, r *http.Request,
	backward bool) (any, error) {
	b := struct {
		Data []tenants.Datum `json:"data"`
		Loss tenants.Loss    `json:"loss"`
		Clip *[2]float64     `json:"clip"`
	}{Loss: tenants.CrossEntropy}
	if err := s.read(w, r, &b); err != nil {
		return nil, err
	}
	j := &job{ended: make(chan struct{}), work: &tenants.Work{Slot: x.slot, Data: b.Data, Loss: b.Loss,
		Backward: backward, Clip: or(b.Clip, [2]float64{0.2, 0.2})}}
	if b.Clip != nil && b.Loss != tenants.PPO { //lfvet:kind it is no part of a model
		return nil, bad("clip", "clip has no effect on %.40s", b.Loss)
	}
	training := s.tenants.work
	var fault error
	if err := s.loop().do(ctx, func() {
		if fault = training.trainer.Check(j.work); fault == nil {
			training.jobs = append(training.jobs, j)
		}
	}); err != nil || fault != nil {
		if err == nil {
			err = bad("data", "%v", fault)
		}
		return nil, err
	}
	select {
	case <-j.ended:
	case <-s.loop().done:
		return nil, queue.ErrClosed
	case <-ctx.Done(): // what has begun ends, so that nobody is in doubt whether it counts
		if err := s.loop().do(context.WithoutCancel(ctx), func() {
			training.withdraw(j, ctx.Err())
		}); err != nil {
			return nil, err
		}
		<-j.ended
	}
	if j.err != nil && ctx.Err() == nil {
		return nil, broke("%v", j.err)
	}
	if j.err != nil {
		return nil, late
	}
	result, err := j.work.Result()
	if err != nil {
		return nil, bad("data", "%v: the adapter has no gradient", err)
	}
	return map[string]any{"loss": result.Loss, "logprobs": result.LogProbs}, nil
}

// alone carries out what changes an adapter, while no answer is drawn with it.
func (s *Server) alone(ctx context.Context, x *tenant, f func() error) error {
	if err := x.gate.enter(ctx, true); err != nil {
		return err
	}
	defer x.gate.leave(true)
	var fault error
	if err := s.loop().do(ctx, func() {
		fault = f()
		s.tenants.slots.Engine.Changed(x.slot + 1)
	}); err != nil {
		return err
	}
	return fault
}

func (s *Server) optimStep(ctx context.Context, x *tenant, w http.ResponseWriter, r *http.Request) (any, error) {
	a := tenants.Adam{LR: 1e-4, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8}
	err := s.read(w, r, &a)
	if err == nil {
		if err = a.Check(); err != nil {
			err = bad("", "%v", err)
		}
	}
	if err != nil {
		return nil, err
	}
	var norm float64
	var n int64
	err = s.alone(ctx, x, func() (err error) {
		norm, n, err = s.tenants.slots.Trainer.Step(x.slot, a)
		return err
	})
	return map[string]any{"step": n, "grad_norm": norm}, err
}

// folder is where an adapter is saved under a label.
func (s *Server) folder(w http.ResponseWriter, r *http.Request, x *tenant, other bool) (dir string, state bool,
	err error) {
	b := struct {
		Label   string  `json:"label"`
		Adapter *string `json:"adapter"`
		State   bool    `json:"state"`
	}{}
	if err := s.read(w, r, &b); err != nil {
		return "", false, err
	}
	owner := x.name
	if other && b.Adapter != nil {
		owner = *b.Adapter
	} else if b.Adapter != nil {
		return "", false, bad("adapter", "adapter has no effect on save")
	}
	switch {
	case s.tenants.o.Dir == "":
		return "", false, bad("", "the server keeps no adapters: --adapters-dir names a folder for them")
	case !names.MatchString(b.Label) || !names.MatchString(owner):
		return "", false, bad("label", "label and adapter are names of letters, digits, dots, lines and underlines")
	}
	if y := s.tenants.find(owner); y != nil {
		if err := y.shows(r); err != nil {
			return "", false, err
		}
	}
	if err := s.tenants.o.unlinked(owner, b.Label); err != nil {
		return "", false, err
	}
	if err := s.tenants.o.opens(owner, r.Header.Get(keyHeader)); err != nil {
		return "", false, err
	}
	return filepath.Join(s.tenants.o.Dir, owner, b.Label), b.State, nil
}

func (s *Server) save(ctx context.Context, x *tenant, w http.ResponseWriter, r *http.Request) (any, error) {
	dir, state, err := s.folder(w, r, x, false)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err == nil {
		return nil, bad("label", "%s is there already", filepath.Base(dir))
	}
	if err := s.tenants.o.lock(x.name, x.key); err != nil {
		return nil, broke("the adapter was not saved: %v", err)
	}
	var unsaved error
	if err := s.loop().do(ctx, func() { unsaved = s.tenants.slots.Save(x.slot, dir, state) }); err != nil {
		return nil, err
	}
	if unsaved != nil {
		return nil, broke("the adapter was not saved: %v", unsaved)
	}
	return map[string]any{"path": dir}, nil
}

// broke is an error that no client has made.
func broke(format string, args ...any) error {
	return fault{http.StatusInternalServerError, "server_error", fmt.Sprintf(format, args...), "", ""}
}

func (s *Server) load(ctx context.Context, x *tenant, w http.ResponseWriter, r *http.Request) (any, error) {
	dir, state, err := s.folder(w, r, x, true)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); err != nil {
		return nil, bad("label", "there is no adapter %s of %s", filepath.Base(dir), filepath.Base(filepath.Dir(dir)))
	}
	err = s.alone(ctx, x, func() error { return s.tenants.slots.Load(x.slot, dir, state) })
	return s.describe(x), err
}

func (s *Server) remove(ctx context.Context, x *tenant, _ http.ResponseWriter, _ *http.Request) (any, error) {
	err := x.gate.enter(ctx, true)
	if err != nil {
		return nil, err
	}
	defer x.gate.leave(true)
	if err = s.loop().do(ctx, func() { s.tenants.slots.Engine.Changed(x.slot + 1) }); err == nil {
		s.tenants.leave(x) // not by the loop, which waits for nobody
	}
	return map[string]any{"name": x.name, "deleted": err == nil}, err
}
