// Package dashboard shows runs in a browser: curves, the graph of actors as it runs, a timeline of the last
// steps, what a run waits for, events, data, checkpoints, and its plan beside what was measured. It reads
// what runs write to their folders and asks their actors over the sockets there; a run that nobody looks at
// is asked nothing. The page is embedded, and wants no network but this server.
package dashboard

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/dataset/recipe"
	"github.com/lfactor/lfactor/topology/cost"
)

//go:embed page
var page embed.FS

// Options say what is shown and to whom.
type Options struct {
	Dirs    []string      // folders of runs (log.dir)
	Hosts   []string      // more names, host:port, under which browsers reach the server, as through a tunnel
	Cluster *Cluster      // whose hosts, jobs and runs are shown as well; nil for none
	Machine *cost.Machine // on which plans are simulated; nil simulates none
	// Program is lfactor's, which reads rows of runs that were started in other folders; "" leaves them out.
	Program string
	Used    func(Role) // hears that a link was used, so that another can be given out; nil for nobody
	// Stop asks a run to save its state and end, of which the folder is given; nil lets nobody do so.
	Stop func(dir string) error
	// Start is a folder of run files that may be started; "" lets nobody start or resume a run.
	Start string
	// Talk opens the newest model of a folder of checkpoints for people to talk to; nil lets nobody do so.
	Talk func(dir string) (Talked, error)
}

// Server shows runs: an http.Handler.
type Server struct {
	o       Options
	cluster *cluster   // nil for none
	runsMu  sync.Mutex // of runs, where there is a cluster
	runs    []*folder  // that were found so far: see all
	access  *access
	handler http.Handler
	streams atomic.Int32
	viewing sync.Mutex // a page of rows is being made
	talks   talks
	port    int
}

// New makes a server that is reached at a port of this host.
func New(port int, o Options) *Server {
	s := &Server{
		o:    o,
		port: port,
		access: &access{cookie: fmt.Sprintf("lfactor-%d", port), now: time.Now, used: o.Used,
			links: map[[32]byte]grant{}, sessions: map[[32]byte]grant{}},
	}
	for _, name := range []string{"127.0.0.1", "localhost", "[::1]"} {
		s.access.hosts = append(s.access.hosts, fmt.Sprintf("%s:%d", name, port))
	}
	s.access.hosts = append(s.access.hosts, o.Hosts...)
	for _, dir := range o.Dirs {
		s.runs = append(s.runs, newFolder(dir))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.file("index.html"))
	mux.HandleFunc("GET /page/{name...}",
		func(w http.ResponseWriter, r *http.Request) { s.file(r.PathValue("name"))(w, r) })
	mux.HandleFunc("GET /favicon.ico",
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	if o.Cluster != nil {
		s.cluster = &cluster{Cluster: o.Cluster, runs: map[string]*folder{}}
	}
	mux.HandleFunc("GET /api/runs", s.list)
	mux.HandleFunc("GET /api/cluster", s.clusterOf)
	mux.HandleFunc("GET /api/stream", s.stream)
	for name, f := range map[string]func(*folder, *http.Request) (any, error){"series": seriesOf, "graph": graphNow,
		"jobs": jobsOf, "events": eventsOf, "logs": logsOf, "data": dataOf, "checkpoints": checkpointsOf,
		"samples": samplesOf, "answers": drawnOf, "plan": s.planOf, "settings": settingsOf,
		"job": func(f *folder, _ *http.Request) (any, error) { return recipe.Look(f.dir) }} {
		mux.HandleFunc("GET /api/runs/{id}/"+name, s.about(f))
	}
	mux.HandleFunc("GET /runs/{id}/rows", s.rows)
	mux.HandleFunc("GET /runs/{id}/shown/{file}", s.shown)
	s.talks.open = o.Talk
	mux.HandleFunc("/runs/{id}/talk/", s.talk)
	mux.HandleFunc("POST /api/runs/{id}/stop", s.about(s.stop))
	mux.HandleFunc("POST /api/runs/{id}/resume", s.about(s.resume))
	mux.HandleFunc("POST /api/start", s.begin)
	mux.HandleFunc("POST /api/runs/{id}/marks", s.about(mark))
	mux.HandleFunc("POST /api/runs/{id}/delete", s.about(func(f *folder, _ *http.Request) (any, error) { return run.Delete(f.dir) }))
	s.handler = s.access.guard(mux)
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Link is an address that begins one session, for ten minutes.
func (s *Server) Link(role Role) string {
	return fmt.Sprintf("http://127.0.0.1:%d/login?token=%s", s.port, s.access.link(role))
}

// Serve answers on a listener until the context ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = h.Close() }) // pages try again by themselves
	defer stop()
	defer func() {
		s.talks.mu.Lock()
		defer s.talks.mu.Unlock()
		s.talks.put(nil)
	}()
	if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// kinds are the types of the page's files, and of a run's.
var kinds = map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".png": "image/png", ".gif": "image/gif", ".json": "application/json"}

// file gives a file of the page.
func (s *Server) file(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		text, err := fs.ReadFile(page, path.Join("page", path.Clean("/"+name)))
		kind, known := kinds[path.Ext(name)]
		if err != nil || !known {
			http.Error(w, "there is no such file", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(text) // who asks may have gone
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	out := struct {
		Admin   bool      `json:"admin"`
		Runs    []summary `json:"runs"`
		Cluster string    `json:"cluster,omitempty"` // its name, where one is shown
		Starts  bool      `json:"starts,omitempty"`  // runs, of these files, and lets those that have ended go on
		Files   []string  `json:"files,omitempty"`
	}{Admin: s.access.who(r) == Admin && s.o.Stop != nil, Runs: []summary{}}
	if out.Starts = out.Admin && s.o.Start != ""; out.Starts {
		out.Files = s.files()
	}
	if s.cluster != nil {
		out.Cluster = s.cluster.Name
	}
	for i, f := range s.all() {
		out.Runs = append(out.Runs, f.summary(i))
	}
	answer(w, out)
}

// raw is JSON that is written already.
type raw []byte

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if text, ok := v.(raw); ok {
		_, _ = w.Write(text) // who asks may have gone
		return
	}
	_ = json.NewEncoder(w).Encode(v) // as above
}

// named is the run that a request names by its number, nil, which is told, where there is none.
func (s *Server) named(w http.ResponseWriter, r *http.Request) *folder {
	id, err := strconv.Atoi(r.PathValue("id"))
	if runs := s.all(); err == nil && id >= 0 && id < len(runs) {
		return runs[id]
	}
	http.Error(w, "there is no such run", http.StatusNotFound)
	return nil
}

// shown gives a picture, a clip or curves that a run has made behind an evaluation.
func (s *Server) shown(w http.ResponseWriter, r *http.Request) {
	f := s.named(w, r)
	if f == nil {
		return
	}
	name := path.Base(r.PathValue("file"))
	b, err := os.ReadFile(filepath.Join(f.dir, run.ShownDir, name))
	if kind := kinds[path.Ext(name)]; err == nil && kind != "" {
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(b) // who asks may have gone
		return
	}
	http.Error(w, "there is no such file", http.StatusNotFound)
}

// about answers a question about one run.
func (s *Server) about(f func(*folder, *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		one := s.named(w, r)
		if one == nil {
			return
		}
		name := path.Base(r.URL.Path)
		if one.simulated() && slices.Contains(ofRuns, name) {
			http.Error(w, "a simulated step has no "+name+" here", http.StatusUnprocessableEntity)
			return
		}
		ask := f
		if slices.Contains(control.RunTold, name) && one.job != nil {
			ask = func(f *folder, r *http.Request) (any, error) { return f.job.told(name, r) }
		}
		v, err := ask(one, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
			return
		}
		answer(w, v)
	}
}

// ofRuns are questions that a simulated step has no answer to.
var ofRuns = []string{"data", "checkpoints", "samples", "plan", "settings", "marks", "delete", "resume"}

// whole is a parameter of a request, or what stands for it.
func whole(r *http.Request, name string, none int64) (int64, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return none, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: want a whole number", name, v)
	}
	return n, nil
}

func (s *Server) stop(f *folder, _ *http.Request) (any, error) {
	if s.o.Stop == nil {
		return nil, errors.New("this server stops no runs")
	}
	if _, _, running := f.ask(); !running {
		return nil, errors.New("no run is under way here")
	}
	if f.job != nil {
		return struct{}{}, f.job.stop()
	}
	return struct{}{}, s.o.Stop(f.dir)
}

// mark changes what is said of a run: the body has all of it.
func mark(f *folder, r *http.Request) (any, error) {
	var to run.Marks
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&to); err != nil {
		return nil, err
	}
	return run.Mark(f.dir, func(m *run.Marks) { *m = to })
}

func graphNow(f *folder, _ *http.Request) (any, error) {
	all, silent, running := f.ask()
	return graphOf(all, silent, running), nil
}

// Process is the process that leads the run in a folder, 0 where none is under way or the system does not tell.
func Process(dir string) int { return host.ProcessOf(dir, 0) }
