package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
)

// Options say how a model is served.
type Options struct {
	Name   string       // of the model, as clients ask for it
	Token  string       // that clients are to show, "" for none
	DType  tensor.DType // of weights and keys
	Engine sample.EngineOptions
	// Processor is a folder with the settings of a model's images, "" for the model's own
	Processor string
	Draft     *trained.Trained  // proposes tokens that the model then computes at once; nil for none
	Queue     int               // requests that may wait; 0 takes 256
	Tokens    int               // tokens of requests that may wait; 0 takes a million
	Keys      map[string]string // of clients, with their names, beside the token; each has a fair share
	Deadline  time.Duration     // of a request, waiting included; 0 takes ten minutes
	Drain     time.Duration     // for requests under way behind the end; 0 takes Drain
	Body      int64             // bytes of a request; 0 takes 8 MiB, and 64 for a model that sees
	Train     *TrainOptions     // adapters that clients train; nil for none
	Pairs     string            // file behind which pairs of answers are written that people keep on the page; "" keeps none
	Reasoning string            // how thoughts are told from what is said: "" leaves them in texts, "auto", or one of Thinkings
	Batches   string            // folder of files and batches; "" has none
	Beside    *url.URL          // another server, whose answers the page shows beside the model's; nil for none
}

// Server is a served model: an http.Handler.
type Server struct {
	o              Options
	m              *trained.Trained
	tok            *token.Tokenizer
	spell          speller
	template       *token.Template
	imageProcessor *trained.ImageProcessor // nil for a model that does not see
	imageAdmission *imageAdmission
	admission      *admission
	noChat         error                // why there is no template
	thinks         *thinking            // nil where thoughts stay in texts
	at             atomic.Pointer[loop] // of the weights that answers begin with
	replaced       atomic.Int64         // how often others took their place
	ending         sync.WaitGroup       // of loops whose weights were replaced
	over           chan struct{}        // closed when the server ends
	mux            *http.ServeMux
	began          time.Time
	now            func() time.Time
	ids            atomic.Int64
	counted        metrics
	times          *latencies
	context        int
	guides         guides
	tenants        *tenantry  // nil where nobody trains
	batches        *batches   // nil where there are none
	pairing        sync.Mutex // lets one pair at a time into the file of pairs
}

// New opens the engine of a model. The models stay the caller's to close, after the server.
func New(m *trained.Trained, o Options) (*Server, error) {
	if o.Queue == 0 {
		o.Queue = 256
	}
	if o.Tokens == 0 {
		o.Tokens = 1 << 20
	}
	if o.Drain == 0 {
		o.Drain = Drain
	}
	if o.Deadline == 0 {
		o.Deadline = 10 * time.Minute
	}
	if o.Body == 0 && m.Model.Vision != nil {
		o.Body = 64 << 20
	} else if o.Body == 0 {
		o.Body = 8 << 20
	}
	s := &Server{o: o, m: m, tok: m.Tokenizer, spell: speller{tok: m.Tokenizer}, mux: http.NewServeMux(), began: time.Now(), now: time.Now,
		times: newLatencies(), over: make(chan struct{})}
	e, free, err := s.open(m)
	if err != nil {
		return nil, err
	}
	s.context, s.imageAdmission, s.admission = e.Context(), newImageAdmission(o.Queue), newAdmission(o.Body)
	if s.template, s.noChat = m.Template(); s.noChat == nil {
		s.thinks = thinkingOf(o.Reasoning, s.template.ToolSource())
	}
	if m.Model.Vision != nil {
		if s.imageProcessor, err = m.ImageProcessor(o.Processor); err != nil {
			free()
			return nil, err
		}
	}
	s.at.Store(newLoop(e, free, s.o, s.tenants.adapterTraining()))
	s.mux.HandleFunc("POST /v1/completions", reading(s, s.completion))
	s.mux.HandleFunc("POST /v1/chat/completions", reading(s, s.chat))
	s.mux.HandleFunc("GET /v1/models", s.guarded(s.models))
	s.mux.HandleFunc("GET /v1/models/{name...}", s.guarded(s.model))
	s.trainable()
	s.beside()
	s.pages()
	if o.Batches != "" {
		if s.batches, err = newBatches(s, o.Batches); err != nil {
			s.Close()
			return nil, err
		}
	}
	s.batches.paths()
	s.mux.HandleFunc("GET /health", s.health)
	s.mux.HandleFunc("GET /metrics", s.guarded(s.metrics))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, fault{http.StatusNotFound, "not_found_error", fmt.Sprintf("there is no %s %s", r.Method,
			r.URL.Path), "", ""})
	})
	return s, nil
}

// open opens the engine of a model, and what trains adapters beside it; free closes it.
func (s *Server) open(m *trained.Trained) (e *sample.Engine, free func(), err error) {
	if s.o.Train == nil {
		return m.Engine(s.o.DType, s.o.Engine, s.o.Draft)
	}
	if s.tenants, err = newTenantry(m, s.o); err != nil {
		return nil, nil, err
	}
	return s.tenants.slots.Engine, s.tenants.slots.Close, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Close ends all requests and gives the engine's memory back.
func (s *Server) Close() {
	s.batches.close()
	close(s.over)
	s.ending.Wait()
	s.loop().close()
}

// Stats says what the engine holds.
func (s *Server) Stats() sample.Stats {
	stats, _, _ := s.loop().snapshot() // errors went to those whom they hit
	return stats
}

// Serve answers on a listener until the context ends; requests under way may then take another moment.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return Listen(ctx, l, Own(s.o.secret(), s), s.o.Drain)
}

// Thinks reports whether thoughts are told from what is said.
func (s *Server) Thinks() bool { return s.thinks != nil }

// fault is an error as clients see it.
type fault struct {
	status        int
	kind, message string
	param, code   string
}

func (f fault) Error() string { return f.message }

func bad(param, format string, args ...any) fault {
	return fault{http.StatusBadRequest, "invalid_request_error", fmt.Sprintf(format, args...), param, ""}
}

// fail answers with an error in OpenAI's form.
func (s *Server) fail(w http.ResponseWriter, err error) {
	var f fault
	if !errors.As(err, &f) {
		f = fault{http.StatusInternalServerError, "server_error", err.Error(), "", ""}
	}
	s.counted.failed.Add(1)
	if f.status == http.StatusTooManyRequests || f.code == "no_room" {
		w.Header().Set("Retry-After", "1")
	}
	if d, ok := w.(speaker); ok {
		answer(w, f.status, d.in.fault(f))
		return
	}
	answer(w, f.status, f.chat())
}

// chat is an error in OpenAI's form.
func (f fault) chat() any {
	return map[string]any{"error": map[string]any{"message": f.message, "type": f.kind, "param": orNull(f.param),
		"code": orNull(f.code)}}
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("serve: an answer does not marshal: %v", err))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // a client that has gone away needs none
}

// guarded lets clients in that show the token.
func (s *Server) guarded(f func(w http.ResponseWriter, r *http.Request)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r, ok := s.client(r)
		if !ok {
			s.fail(w, fault{http.StatusUnauthorized, "authentication_error", "the API key is missing or wrong", "",
				"invalid_api_key"})
			return
		}
		holding(f)(w, r)
	}
}

// aboutOf describes the model, or an adapter of it.
func (s *Server) aboutOf(name string) map[string]any {
	x := map[string]any{"id": name, "object": "model", "created": s.began.Unix(), "owned_by": "lfactor",
		"max_model_len": s.context}
	if name != s.o.Name {
		x["parent"] = s.o.Name
	}
	return x
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	all := []any{s.aboutOf(s.o.Name)}
	for _, t := range s.tenants.list() {
		all = append(all, s.aboutOf(t.name))
	}
	answer(w, http.StatusOK, map[string]any{"object": "list", "data": all})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if err := s.named(name); err != nil {
		s.fail(w, err)
		return
	}
	answer(w, http.StatusOK, s.aboutOf(name))
}

// named refuses models that are not served.
func (s *Server) named(name string) error {
	if name == s.o.Name || s.tenants.find(name) != nil {
		return nil
	}
	return fault{http.StatusNotFound, "invalid_request_error",
		fmt.Sprintf("the model %q is not served here; %q is", name, s.o.Name), "model", "model_not_found"}
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-s.loop().done:
		answer(w, http.StatusServiceUnavailable, map[string]any{"status": "closed"})
	default:
		answer(w, http.StatusOK, map[string]any{"status": "ok"})
	}
}
