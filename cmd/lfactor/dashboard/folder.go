package dashboard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/actors/run/tables"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset/recipe"
	"github.com/lfactor/lfactor/topology/machine"
)

const (
	eventsMax  = 20_000                 // that are kept of a run, the newest
	looksEvery = 900 * time.Millisecond // files and actors are looked at no more often, however many pages are open
	askWithin  = time.Second            // for actors that are asked what they do
)

// evaluation is the loss on held-out data after a step.
type evaluation struct {
	Step int64   `json:"step"`
	Loss float64 `json:"loss"`
}

// folder is a run as its folder shows it. Whoever reads it holds its lock.
type folder struct {
	dir, name string
	trace     string // the jobs of a run that is over, or of a simulation

	mu      sync.Mutex
	looked  time.Time
	metrics tail
	log     tail
	edges   tail
	curves  *series
	experts *run.Metrics // the newest with experts
	events  []tables.Event
	life    int // how often the log was written anew
	dropped int // of events, those that are not kept any more
	evals   []evaluation
	window  *record.EdgeWindow // the newest
	wrong   error              // why something could not be read
	steps   int                // of the run file
	written time.Time          // when that was

	tracing  sync.Mutex
	tracedAt time.Time // when the file that jobs are of was written
	jobs     []record.Job
	places   map[string]string // of actors, as pp 0 dp 1

	asking  sync.Mutex
	actors  func() ([]host.Status, []host.Silent, error) // asks them
	asked   time.Time
	answer  []host.Status
	silent  []host.Silent
	running bool

	recalling sync.Mutex
	recent    func() ([]record.Job, error) // asks actors for their newest jobs
	recalled  time.Time
	newest    []record.Job
	newestErr error
	where     func(actor string) string // its host; nil where all are on this one

	plan planned
	job  *jobRun // of a cluster, whose run this is; nil for a run on this host
}

// newFolder is that of a run, or the trace that lfactor sim --trace has written, as a run that is over.
func newFolder(dir string) *folder {
	name := filepath.Base(dir)
	if i, err := os.Stat(dir); err == nil && !i.IsDir() {
		f := newFolder(filepath.Join(dir, "no-run"))
		f.metrics.path, f.log.path, f.edges.path = "", "", "" // there are none
		f.dir, f.trace, f.name = dir, dir, strings.TrimSuffix(name, ".json")+" (simulated)"
		return f
	}
	if abs, err := filepath.Abs(dir); err == nil {
		name = filepath.Base(filepath.Dir(abs)) + "/" + filepath.Base(abs)
	}
	ask := func() ([]host.Status, []host.Silent, error) { return host.AskWhy(dir, askWithin) }
	recent := func() ([]record.Job, error) { return record.RecentJobs(dir, askWithin) }
	return &folder{actors: ask, recent: recent, trace: filepath.Join(dir, "trace.json"), dir: dir, name: name,
		curves:  newSeries(),
		metrics: tail{path: filepath.Join(dir, "metrics.jsonl")},
		log: tail{
			path: filepath.Join(dir, "log.jsonl"),
		},
		edges: tail{path: filepath.Join(dir, run.EdgesName)},
	}
}

// simulated tells a trace of lfactor sim from a run.
func (f *folder) simulated() bool { return f.metrics.path == "" }

// look reads what has been appended since, and returns with the lock held.
func (f *folder) look() {
	f.mu.Lock()
	if time.Since(f.looked) < looksEvery/2 {
		return
	}
	f.wrong = nil
	note := func(err error) {
		if err != nil && f.wrong == nil {
			f.wrong = err
		}
	}
	if f.job != nil {
		note(f.job.pull(f.dir))
	}
	note(f.metrics.read(f.curves.reset, func(line []byte) {
		var m run.Metrics
		if json.Unmarshal(line, &m) == nil && m.Step > 0 {
			f.curves.add(&m)
			if len(m.Experts) > 0 {
				f.experts = &m
			}
		}
	}))
	note(f.log.read(func() { f.events, f.evals, f.dropped, f.life = nil, nil, 0, f.life+1 }, f.event))
	note(f.edges.read(func() { f.window = nil }, func(line []byte) {
		var w record.EdgeWindow
		if json.Unmarshal(line, &w) == nil {
			f.window = &w
		}
	}))
	f.looked = time.Now()
}

// event takes in a line of the log.
func (f *folder) event(line []byte) {
	e, err := tables.ParseEvent(line)
	if err != nil || e.Kind == "" {
		return
	}
	e.Text = configs.Redact(e.Text)
	if e.Kind == "eval" && e.Step != nil && e.Value != nil {
		for len(f.evals) > 0 && f.evals[len(f.evals)-1].Step >= *e.Step { // taken again since
			f.evals = f.evals[:len(f.evals)-1]
		}
		f.evals = append(f.evals, evaluation{*e.Step, *e.Value})
	}
	if f.events = append(f.events, e); len(f.events) > 2*eventsMax {
		f.dropped += len(f.events) - eventsMax
		f.events = append([]tables.Event(nil), f.events[len(f.events)-eventsMax:]...)
	}
}

// state is what a run's record says of its end.
func state(dir string, running bool) (is, why string) {
	r := run.ReadRecord(dir)
	switch {
	case running:
		return run.Running, ""
	case r.Status == run.Running:
		return "killed", "it ended without a word: it was killed, or its host was lost"
	case r.Status == "":
		return "not running", ""
	}
	return r.Status, r.Reason
}

// ask is what the run's actors do now, and the processes that do not answer; running is false where none is under way.
func (f *folder) ask() (all []host.Status, silent []host.Silent, running bool) {
	f.asking.Lock()
	defer f.asking.Unlock()
	if time.Since(f.asked) > looksEvery {
		var err error
		f.answer, f.silent, err = f.actors()
		f.running, f.asked = err == nil, time.Now()
	}
	return f.answer, f.silent, f.running
}

// summary is a run in the list of runs.
type summary struct {
	ID      int     `json:"id"`
	Name    string  `json:"name"`
	Dir     string  `json:"dir"`
	Running bool    `json:"running"`
	State   string  `json:"state"`         // how it has ended, of a run that has
	Why     string  `json:"why,omitempty"` // of one that has failed
	Sim     bool    `json:"simulated"`
	Step    int64   `json:"step"`
	Steps   int     `json:"steps"` // of the run file, 0 where it cannot be read
	Loss    float64 `json:"loss"`
	Model   string  `json:"model"`
	Plan    string  `json:"plan"`
	Updated float64 `json:"updated"` // seconds since 1970, of the newest step
	Wrong   string  `json:"wrong,omitempty"`
	Draws   bool    `json:"draws,omitempty"` // it has a log of answers
	Shows   bool    `json:"shows,omitempty"` // it has answers of train.eval_prompts
	Data    bool    `json:"data,omitempty"`  // it is a recipe of lfactor data run, and no run

	Marks run.Marks `json:"marks"` // in place of Name, a name of users'
}

func (f *folder) summary(id int) summary {
	_, _, running := f.ask()
	f.look()
	defer f.mu.Unlock()
	s := summary{ID: id, Name: f.name, Dir: f.dir, Running: running, Sim: f.simulated()}
	s.State, s.Why = state(f.dir, running)
	var err error
	if s.Marks, err = run.Mark(f.dir, nil); err != nil && !s.Sim { // a simulated step has no folder
		s.Wrong = err.Error()
	}
	if n := len(f.curves.step); n > 0 {
		s.Step = f.curves.step[n-1]
		if l := f.curves.cols[0][n-1]; l == l {
			s.Loss = float64(l)
		}
	}
	if s.Data = recipe.Is(f.dir); s.Data {
		s.State = ""
		if p, err := recipe.Look(f.dir); err != nil {
			s.Wrong = err.Error()
		} else if s.State = "under way, or cut off"; p.Done {
			s.State = "finished"
		}
	}
	s.Shows = slices.ContainsFunc(f.events, func(e tables.Event) bool { return e.Kind == "answer" })
	s.Draws = !s.Sim && machine.Exists(filepath.Join(f.dir, rollout.FileName))
	if i, err := os.Stat(f.metrics.path); err == nil {
		s.Updated = float64(i.ModTime().UnixMilli()) / 1e3
	}
	for i := len(f.events) - 1; i >= 0 && (s.Model == "" ||
		s.Plan == ""); i-- { // as the run's newest start said them
		if t := f.events[i].Text; s.Model == "" && len(t) > 8 && t[:8] == "model   " {
			s.Model = t[8:]
		} else if s.Plan == "" && len(t) > 8 && t[:8] == "plan    " {
			s.Plan = t[8:]
		}
	}
	if i, err := os.Stat(filepath.Join(f.dir, "run.yaml")); err == nil && !i.ModTime().Equal(f.written) {
		if cfg, err := f.config(); err == nil {
			f.steps = cfg.Run.Train.Steps
		}
		f.written = i.ModTime()
	}
	s.Steps = f.steps
	if f.wrong != nil {
		s.Wrong = f.wrong.Error()
	}
	return s
}
