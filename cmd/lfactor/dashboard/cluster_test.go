package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/agent"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head"
	"github.com/lfactor/lfactor/actors/run"
)

// scripted is a head that answers what it was told to.
type scripted struct {
	mu      sync.Mutex
	answers map[string]any // by method and path without what is asked for; an error, or what is told as JSON
	asked   []string
	events  []head.Event
}

func (h *scripted) set(path string, v any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[path] = v
}

// Do implements Head.
func (h *scripted) Do(_ context.Context, method, path string, _, out any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = append(h.asked, method+" "+path)
	name, _, _ := strings.Cut(path, "?")
	v, ok := h.answers[method+" "+name]
	if !ok {
		v = agent.Piece{}
	}
	if err, bad := v.(error); bad {
		return err
	}
	if f, told := v.(func() any); told {
		v = f()
	}
	text, err := json.Marshal(v)
	if err == nil && out != nil {
		err = json.Unmarshal(text, out)
	}
	return err
}

// Lines implements Head.
func (h *scripted) Lines(_ context.Context, path string, next func() any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	after := 0
	if _, err := fmt.Sscanf(path, "/v1/events?follow=0&after=%d", &after); err != nil {
		return err
	}
	v := next()
	for _, e := range h.events {
		if e.N > after {
			*v.(*head.Event) = e
			v = next()
		}
	}
	return nil
}

// again lets a server look at once.
func again(s *Server) {
	s.cluster.mu.Lock()
	s.cluster.looked = time.Time{}
	s.cluster.mu.Unlock()
	for _, f := range s.runs {
		f.mu.Lock()
		f.looked = time.Time{}
		f.mu.Unlock()
	}
}

func steps(from, to int64) (b []byte) {
	for i := from; i <= to; i++ {
		text, _ := json.Marshal(run.Metrics{Step: i, Loss: float64(i), Seconds: 1}) // numbers
		b = append(append(b, text...), '\n')
	}
	return b
}

// ofScript is a server for a cluster with a job that runs, one that has no run, and a viewer's session.
func ofScript(t *testing.T) (s *Server, h *scripted, cookie string, job head.Job) {
	t.Helper()
	job = head.Job{ID: "1", State: head.Running, Procs: []head.Proc{{Host: "h1"}},
		Spec: control.Spec{Name: "<b>tiny", Log: "/x/run"}}
	loads := head.Job{ID: "2", State: head.Ended, Spec: control.Spec{Name: "tokenize"}}
	h = &scripted{answers: map[string]any{"GET /v1/status": head.Status{Jobs: []head.Job{job, loads}},
		"GET /v1/jobs/1/why":      []head.Because{{Proc: 0, Host: "h1", Away: true}},
		"GET /v1/jobs/1/settings": &control.Refused{Status: 403, Text: "vera has the role view"},
		"POST /v1/jobs/1/stop":    errors.New("vera has the role view"),
		"GET /v1/jobs/1/files/metrics.jsonl": agent.Piece{Anew: true, Next: 9, Mark: []byte{7},
			Data: steps(1, 3)}}, events: []head.Event{{N: 1, Kind: "join", Text: "<i>"}}}
	s = New(8265, Options{Cluster: &Cluster{Name: "lab", Client: h, Dir: t.TempDir()},
		Stop: func(string) error { return errors.New("this is no job of this host") }})
	return s, h, enter(t, s, Viewer), job
}

type list struct {
	Cluster string
	Runs    []summary
}

// TestCluster: jobs that a cluster has become runs, whose files are read by pieces, anew where they were
// written anew; what is not read from here is said.
func TestCluster(t *testing.T) {
	s, h, cookie, _ := ofScript(t)
	l := get[list](t, s, cookie, "/api/runs")
	require.Equal(t, "lab", l.Cluster)
	require.Len(t, l.Runs, 1, "a job without a run is none")
	require.Equal(t, "job 1 <b>tiny", l.Runs[0].Name)
	require.True(t, l.Runs[0].Running)
	require.Equal(t, int64(3), l.Runs[0].Step)
	require.Contains(t, h.asked, "GET /v1/jobs/1/files/metrics.jsonl?at=-1&mark=")
	g := get[graph](t, s, cookie, "/api/runs/0/graph")
	require.Equal(t, "out of reach on h1", string(g.Silent[0].State))

	h.set("GET /v1/jobs/1/files/metrics.jsonl", agent.Piece{Next: 12, Data: steps(4, 4)})
	again(s)
	require.Equal(t, int64(4), get[list](t, s, cookie, "/api/runs").Runs[0].Step)
	require.Contains(t, h.asked, "GET /v1/jobs/1/files/metrics.jsonl?at=9&mark=07")
	require.Equal(t, 1, strings.Count(strings.Join(h.asked, "\n"), "/settings"),
		"a refusal is not asked for again")
	h.set("GET /v1/jobs/1/files/metrics.jsonl", agent.Piece{Anew: true, Next: 3, Data: steps(1, 2)})
	again(s)
	require.Equal(t, []int64{1, 2}, get[shown](t, s, cookie, "/api/runs/0/series").Series.Step)

	c := get[clusterText](t, s, cookie, "/api/cluster")
	require.Equal(t, []int{0, -1}, []int{c.Jobs[0].Run, c.Jobs[1].Run})
	require.Equal(t, "<i>", c.Events[0].Text)
	for _, name := range control.RunTold {
		h.set("GET /v1/jobs/1/files/"+name, agent.Piece{Data: []byte(`{"step": 2}`)})
		require.Equal(t, map[string]int{"step": 2}, get[map[string]int](t, s, cookie,
			"/api/runs/0/"+name+"?step=2"))
		require.Contains(t, h.asked, "GET /v1/jobs/1/files/"+name+"?at=2")
		h.set("GET /v1/jobs/1/files/"+name, agent.Piece{Err: "no such folder"})
		r := call(s, "GET", "/api/runs/0/"+name, cookie, nil)
		text, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.Equal(t, "no such folder\n", string(text))
		require.Equal(t, 422, r.StatusCode)
	}
	require.Equal(t, 403, call(s, "POST", "/api/runs/0/stop", cookie, nil).StatusCode)
}

// TestClusterEnded: of a job that had ended before it was looked at all pieces of a file are read, over as many
// looks as that takes.
func TestClusterEnded(t *testing.T) {
	s, h, cookie, job := ofScript(t)
	job.State = head.Ended
	h.set("GET /v1/status", head.Status{Jobs: []head.Job{job}})
	const pieces = piecesMost + 36
	n := int64(0)
	h.set("GET /v1/jobs/1/files/metrics.jsonl", func() any {
		if n == pieces {
			return agent.Piece{Next: n}
		}
		n++
		return agent.Piece{Anew: n == 1, Next: n, More: n < pieces, Data: steps(n, n)}
	})
	for range 3 {
		again(s)
		get[list](t, s, cookie, "/api/runs")
	}
	require.Equal(t, int64(pieces), get[list](t, s, cookie, "/api/runs").Runs[0].Step)
}

// TestClusterAway: what is known of a cluster stays where its head is away, and of a job that has ended;
// many jobs are told of up to a bound.
func TestClusterAway(t *testing.T) {
	s, h, cookie, job := ofScript(t)
	require.Len(t, get[list](t, s, cookie, "/api/runs").Runs, 1)
	h.set("GET /v1/status", errors.New("the head is away"))
	h.events = append(h.events, head.Event{N: 2})
	again(s)
	c := get[clusterText](t, s, cookie, "/api/cluster")
	require.Equal(t, "the head is away", c.Wrong)
	require.Len(t, c.Jobs, 2, "what was known stays")
	require.Len(t, get[list](t, s, cookie, "/api/runs").Runs, 1)
	job.State = head.Ended
	h.set("GET /v1/status", head.Status{Jobs: []head.Job{job}})
	h.set("GET /v1/jobs/1/files/metrics.jsonl", agent.Piece{Next: 12, Data: steps(4, 5)})
	again(s)
	s.runs[0].asked = time.Time{}
	require.Equal(t, int64(5), get[list](t, s, cookie, "/api/runs").Runs[0].Step,
		"what came before its end is read")
	h.set("GET /v1/jobs/1/files/metrics.jsonl", errors.New("nobody asks for it"))
	again(s)
	l := get[list](t, s, cookie, "/api/runs")
	require.False(t, l.Runs[0].Running)
	require.Empty(t, l.Runs[0].Wrong)
	require.Equal(t, int64(5), l.Runs[0].Step)
	require.Len(t, get[clusterText](t, s, cookie, "/api/cluster").Events, 2)

	var many []head.Job
	for n := range 2 * clusterRuns {
		many = append(many, head.Job{ID: itoa(n + 10), State: head.Ended, Spec: control.Spec{Log: "/x"}})
	}
	h.set("GET /v1/status", head.Status{Jobs: many})
	again(s)
	require.Len(t, get[list](t, s, cookie, "/api/runs").Runs, 1+clusterJobs)
	require.Len(t, get[clusterText](t, s, cookie, "/api/cluster").Jobs, clusterJobs)
	h.set("GET /v1/status", head.Status{Jobs: many[:100]})
	again(s)
	require.Len(t, get[list](t, s, cookie, "/api/runs").Runs, clusterRuns)

	s = New(8265, Options{Dirs: []string{t.TempDir()}})
	require.Equal(t, 404, call(s, "GET", "/api/cluster", enter(t, s, Viewer), nil).StatusCode)
}

// TestClusterStream: a page of the cluster hears of it by the stream.
func TestClusterStream(t *testing.T) {
	h := &scripted{answers: map[string]any{"GET /v1/status": head.Status{Head: "<script>"}}}
	s := New(8265, Options{Cluster: &Cluster{Name: "lab", Client: h, Dir: t.TempDir()}})
	name, data := listen(t, s, "/api/stream?cluster=1")()
	require.Equal(t, "cluster", name)
	require.Contains(t, data, `"head":"\u003cscript\u003e"`)
}
