package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/head"
)

const (
	clusterJobs   = 200              // the newest, that are listed
	clusterRuns   = 256              // jobs whose runs are shown, from the start of the server on
	clusterEvents = 300              // the newest
	clusterWithin = 4 * time.Second  // for the head's answer
	toldWithin    = 35 * time.Second // for what a host works out
)

// Cluster is one whose hosts, jobs and their runs are shown: what its head tells the user whose certificate
// Client has, no more.
type Cluster struct {
	Name   string
	Client Head
	Dir    string // private, for what is read of runs; its owner removes it
}

// Head is asked as *control.Client asks it.
type Head interface {
	Do(ctx context.Context, method, path string, in, out any) error
	Lines(ctx context.Context, path string, next func() any) error
}

// cluster is what is known of a Cluster.
type cluster struct {
	*Cluster

	mu     sync.Mutex
	looked time.Time
	status head.Status
	events []head.Event
	wrong  error // why the newest look failed

	runs map[string]*folder // by job
}

// do asks the head.
func (c *cluster) do(method, path string, out any) error {
	return c.doWithin(clusterWithin, method, path, out)
}

func (c *cluster) doWithin(limit time.Duration, method, path string, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.Client.Do(ctx, method, path, nil, out)
}

// look is the cluster as the head has it; what was known is kept where that does not answer.
func (c *cluster) look() (head.Status, []head.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < looksEvery {
		return c.status, c.events, c.wrong
	}
	var now head.Status
	if c.wrong = c.do("GET", "/v1/status", &now); c.wrong == nil {
		slices.SortStableFunc(now.Jobs, func(a, b head.Job) int { return a.Queued.Compare(b.Queued) })
		c.status = now
		c.wrong = c.news()
	}
	c.looked = time.Now()
	return c.status, c.events, c.wrong
}

// news takes in the events since the newest that is known.
func (c *cluster) news() error {
	ctx, cancel := context.WithTimeout(context.Background(), clusterWithin)
	defer cancel()
	after := 0
	if n := len(c.events); n > 0 {
		after = c.events[n-1].N
	}
	var some []*head.Event
	err := c.Client.Lines(ctx, "/v1/events?follow=0&after="+itoa(after), func() any {
		if len(some) > 2*clusterEvents { // the newest count
			some = slices.Delete(some, 0, clusterEvents)
		}
		some = append(some, &head.Event{})
		return some[len(some)-1]
	})
	all := slices.Clone(c.events)
	for _, e := range some {
		if e.N > after { // the last one is the end of the list
			all = append(all, *e)
		}
	}
	c.events = all[max(0, len(all)-clusterEvents):]
	return err
}

// all are the runs that are shown; jobs that a cluster has got since become some.
func (s *Server) all() []*folder {
	if s.cluster == nil {
		s.runsMu.Lock()
		defer s.runsMu.Unlock()
		return slices.Clip(s.runs)
	}
	now, _, _ := s.cluster.look() // where the head is away, those that are known
	s.runsMu.Lock()
	defer s.runsMu.Unlock()
	for _, j := range now.Jobs[max(0, len(now.Jobs)-clusterJobs):] {
		f := s.cluster.runs[j.ID]
		if f == nil && (j.Spec.Log == "" || len(s.runs) >= clusterRuns) {
			continue
		}
		if f == nil {
			f = newJob(s.cluster, &j)
			s.cluster.runs[j.ID] = f
			s.runs = append(s.runs, f)
		}
		f.job.state(&j)
	}
	return slices.Clip(s.runs)
}

// jobLine is a job of a cluster on the page.
type jobLine struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Why      string    `json:"why,omitempty"` // it waits, or how it ended
	Hosts    []string  `json:"hosts"`
	Procs    int       `json:"procs"`
	Restarts int       `json:"restarts"`
	Queued   time.Time `json:"queued"`
	Began    time.Time `json:"began,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	Run      int       `json:"run"` // its place in the list of runs, -1 where it is none
}

// clusterText is a cluster on the page.
type clusterText struct {
	Name    string           `json:"name"`
	Head    string           `json:"head"` // address of the one that leads
	Version string           `json:"version"`
	Up      time.Time        `json:"up"`
	Heads   []head.SeatState `json:"heads"`
	Hosts   []head.Host      `json:"hosts"`
	Jobs    []jobLine        `json:"jobs"`   // the newest last
	Events  []head.Event     `json:"events"` // as Jobs
	Wrong   string           `json:"wrong,omitempty"`
}

// clusterNow is the cluster at the newest look.
func (s *Server) clusterNow() clusterText {
	runs := s.all()
	now, events, err := s.cluster.look()
	t := clusterText{Name: s.cluster.Name, Head: now.Head, Version: now.Version, Up: now.Up, Heads: now.Heads,
		Hosts: append([]head.Host{}, now.Hosts...), Jobs: []jobLine{}, Events: append([]head.Event{}, events...)}
	if err != nil {
		t.Wrong = err.Error()
	}
	at := map[string]int{}
	for i, f := range runs {
		if f.job != nil {
			at[f.job.id] = i
		}
	}
	for _, j := range now.Jobs[max(0, len(now.Jobs)-clusterJobs):] {
		l := jobLine{ID: j.ID, Name: j.Spec.Name, State: string(j.State), Why: j.Why, Hosts: j.Hosts,
			Procs: len(j.Procs), Restarts: j.Restarts, Queued: j.Queued, Began: j.Began, Ended: j.Ended, Run: -1}
		if i, ok := at[j.ID]; ok {
			l.Run = i
		}
		t.Jobs = append(t.Jobs, l)
	}
	return t
}

func (s *Server) clusterOf(w http.ResponseWriter, _ *http.Request) {
	if s.cluster == nil {
		http.Error(w, "no cluster is shown here: lfactor ui --cluster NAME shows one", http.StatusNotFound)
		return
	}
	answer(w, s.clusterNow())
}

// newJob is the run of a job.
func newJob(c *cluster, j *head.Job) *folder {
	dir := filepath.Join(c.Dir, "job-"+filepath.Base(j.ID))
	err := os.MkdirAll(dir, 0o700)
	f := newFolder(dir)
	f.name = "job " + j.ID + " " + cmp.Or(j.Spec.Name, filepath.Base(j.Spec.Log))
	f.job = &jobRun{cluster: c, id: j.ID, made: err, files: map[string]*mirror{}, hosts: map[string]string{}}
	f.actors, f.recent, f.where = f.job.actors, f.job.recent, f.job.where
	return f
}

var errOver = errors.New("the job does not run")
