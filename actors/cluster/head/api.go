package head

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// routes are what the head answers. Everything but joining wants a certificate of the cluster with one
// of the roles.
func (h *Head) routes(mux *http.ServeMux) {
	look := []trust.Role{trust.Admin, trust.Submit, trust.View}
	use := []trust.Role{trust.Admin, trust.Submit}
	rule := []trust.Role{trust.Admin}
	mux.HandleFunc("GET /v1/agent", h.allow(h.attend, trust.Agent))
	mux.HandleFunc("GET /v1/head", h.allow(h.attendHead, trust.Head))
	mux.HandleFunc("POST /v1/join", h.join)
	mux.HandleFunc("GET /v1/status", h.allow(h.status, look...))
	mux.HandleFunc("GET /v1/jobs", h.allow(h.listJobs, look...))
	mux.HandleFunc("POST /v1/jobs", h.allow(h.newJob, use...))
	mux.HandleFunc("GET /v1/jobs/{id}", h.allow(h.oneJob, look...))
	mux.HandleFunc("GET /v1/jobs/{id}/output", h.allow(h.follow, look...))
	mux.HandleFunc("GET /v1/jobs/{id}/why", h.allow(h.why, look...))
	mux.HandleFunc("GET /metrics", h.allow(h.metrics, look...))
	mux.HandleFunc("POST /v1/jobs/{id}/stop", h.allow(h.stopJob, use...))
	mux.HandleFunc("GET /v1/events", h.allow(h.followEvents, look...))
	mux.HandleFunc("POST /v1/tokens", h.allow(h.newToken, rule...))
	mux.HandleFunc("POST /v1/hosts/{name}/drain", h.allow(h.drain, rule...))
	mux.HandleFunc("DELETE /v1/hosts/{name}", h.allow(h.removeHost, rule...))
	mux.HandleFunc("POST /v1/heads/{name}/replace", h.allow(h.replace, rule...))
	mux.HandleFunc("POST /v1/heads/{name}/promote", h.allow(h.promote, rule...))
	mux.HandleFunc("POST /v1/check", h.allow(h.check, rule...))
	mux.HandleFunc("GET /v1/backup", h.allow(h.backup, rule...))
	mux.HandleFunc("POST /v1/down", h.allow(h.down, rule...))
}

// maxRequest bounds what a request may bring: run files, with some room.
const maxRequest = 16 << 20

func read(w http.ResponseWriter, r *http.Request, v any) bool {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(v); err != nil {
		http.Error(w, "the request: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // whoever asked may have gone
}

// Host is a host as status tells of it.
type Host struct {
	control.Info
	State string        `json:"state"` // ready, busy, drained, away
	Since time.Time     `json:"since"`
	Skew  time.Duration `json:"skew"`
	Job   string        `json:"job,omitempty"`
	Procs []int         `json:"procs,omitempty"`
}

// Status is the cluster at one moment.
type Status struct {
	Head    string      `json:"head"`            // address of the one that leads
	Heads   []SeatState `json:"heads,omitempty"` // all, where there are several
	Pid     int         `json:"pid"`
	Version string      `json:"version"`
	Up      time.Time   `json:"up"`
	CA      string      `json:"ca"`
	Hosts   []Host      `json:"hosts"`
	Jobs    []Job       `json:"jobs"`
}

func (h *Head) status(w http.ResponseWriter, _ *http.Request) { answer(w, h.now()) }

func (h *Head) listJobs(w http.ResponseWriter, _ *http.Request) { answer(w, h.now().Jobs) }

func (h *Head) newJob(w http.ResponseWriter, r *http.Request) {
	var s control.Spec
	if !read(w, r, &s) {
		return
	}
	j, err := h.submit(s)
	var fit fitError
	switch {
	case errors.As(err, &fit):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		answer(w, j)
	}
}

// job finds the job of a request, with the lock held where ok.
func (h *Head) job(w http.ResponseWriter, r *http.Request) (j *job, ok bool) {
	h.mu.Lock()
	id := r.PathValue("id")
	switch id {
	case "last":
		id = strconv.Itoa(h.next)
	case "running": // the newest that is: one that waits or has ended has nothing to say
		n := 0
		for _, j := range h.jobs {
			if k, err := strconv.Atoi(j.ID); err == nil && j.State == Running {
				n = max(n, k)
			}
		}
		if id = strconv.Itoa(n); n == 0 {
			h.mu.Unlock()
			http.Error(w, "no job runs; `lfactor ps` lists them", http.StatusNotFound)
			return nil, false
		}
	}
	if j = h.jobs[id]; j == nil {
		h.mu.Unlock()
		http.Error(w, fmt.Sprintf("there is no job %s; `lfactor ps` lists them", id),
			http.StatusNotFound)
		return nil, false
	}
	return j, true
}

func (h *Head) oneJob(w http.ResponseWriter, r *http.Request) {
	j, ok := h.job(w, r)
	if !ok {
		return
	}
	out := j.Job
	h.mu.Unlock()
	answer(w, out)
}

// stopJob asks a job's leader to end after the step under way; with now=1 the job is killed.
func (h *Head) stopJob(w http.ResponseWriter, r *http.Request) {
	j, ok := h.job(w, r)
	if !ok {
		return
	}
	defer h.mu.Unlock()
	sig := syscall.SIGTERM
	if r.URL.Query().Get("signal") == "int" {
		sig = syscall.SIGINT
	}
	switch {
	case j.State == Ended:
	case j.State == Queued:
		h.end(j, 130, "was stopped before it began")
	case r.URL.Query().Get("now") == "1":
		h.end(j, 130, "was killed by its user")
	default:
		j.Stop = true
		h.save(j)
		lead := &j.Procs[0]
		if !h.agents[lead.Host].order(control.Message{Kind: control.Signal, Job: j.ID, Proc: 0,
			Gen: lead.Gen, Code: int(sig)}) {
			h.end(j, 1, "was stopped while the host that led it was away")
		}
	}
	answer(w, j.Job)
}

// down ends the cluster: all agents with their processes, then the head. With keep=1 files stay where
// they are.
func (h *Head) down(w http.ResponseWriter, r *http.Request) {
	code := 1
	if r.URL.Query().Get("keep") == "1" {
		code = 0
	}
	h.mu.Lock()
	var told []string
	for n, a := range h.agents {
		if a.order(control.Message{Kind: control.Quit, Code: code}) {
			told = append(told, n)
		}
	}
	h.ending = true
	h.mu.Unlock()
	limit := time.Now().Add(10 * time.Second)
	for h.connected() > 0 && time.Now().Before(limit) {
		<-time.After(10 * time.Millisecond)
	}
	answer(w, map[string]any{"ended": told})
	h.mu.Lock()
	for _, o := range h.others {
		if o.conn != nil {
			_ = o.conn.Send(control.Message{Kind: control.Quit}) // else whoever asks for the end, ends it
		}
	}
	h.mu.Unlock()
	h.ended()
}

func (h *Head) connected() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.agents {
		if a.conn != nil {
			n++
		}
	}
	return n
}

// now is the cluster at this moment.
func (h *Head) now() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Status{Head: h.self.Addr, Heads: h.states(), Pid: pid(), Version: h.o.Version, Up: h.began,
		CA:    h.ca.Hash(),
		Hosts: []Host{}, Jobs: []Job{}}
	for _, j := range h.sorted() {
		s.Jobs = append(s.Jobs, j.Job)
	}
	for _, a := range h.inOrder() {
		x := Host{Info: a.info, State: "away", Since: a.since, Skew: a.skew}
		x.Name = a.Name
		for _, j := range s.Jobs {
			for n, p := range j.Procs {
				if j.State == Running && p.Host == a.Name && p.alive() {
					x.Job, x.Procs = j.ID, append(x.Procs, n)
				}
			}
		}
		switch {
		case !a.heard():
		case a.Drained:
			x.State = "drained"
		case x.Job != "":
			x.State = "busy"
		default:
			x.State = "ready"
		}
		s.Hosts = append(s.Hosts, x)
	}
	return s
}
