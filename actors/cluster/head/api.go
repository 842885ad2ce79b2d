package head

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/cluster/head/decide"
	"github.com/lfactor/lfactor/actors/cluster/trust"
)

// routes are what the head answers. Everything but joining wants a certificate of the cluster with one of the roles.
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
	mux.HandleFunc("GET /v1/jobs/{id}/files/{name}", h.allow(h.file, look...))
	mux.HandleFunc("GET /v1/jobs/{id}/settings", h.allow(h.settings, use...))
	mux.HandleFunc("GET /metrics", h.allow(h.metrics, look...))
	mux.HandleFunc("POST /v1/jobs/{id}/stop", h.allow(h.stopJob, use...))
	mux.HandleFunc("GET /v1/events", h.allow(h.followEvents, look...))
	mux.HandleFunc("POST /v1/tokens", h.allow(h.newToken, rule...))
	mux.HandleFunc("GET /v1/users", h.allow(h.listUsers, rule...))
	mux.HandleFunc("POST /v1/users", h.allow(h.newUser, rule...))
	mux.HandleFunc("DELETE /v1/users/{name}", h.allow(h.dropUser, rule...))
	mux.HandleFunc("POST /v1/renew", h.allow(h.renewUser, look...))
	mux.HandleFunc("POST /v1/hosts/{name}/drain", h.allow(h.drain, rule...))
	mux.HandleFunc("DELETE /v1/hosts/{name}", h.allow(h.removeHost, rule...))
	mux.HandleFunc("POST /v1/heads/{name}/replace", h.allow(h.replace, rule...))
	mux.HandleFunc("POST /v1/heads/{name}/promote", h.allow(h.promote, rule...))
	mux.HandleFunc("POST /v1/check", h.allow(h.check, rule...))
	mux.HandleFunc("GET /v1/backup", h.allow(h.backup, rule...))
	mux.HandleFunc("POST /v1/down", h.allow(h.down, rule...))
}

// maxRequest bounds what a request may bring: run files, with some room.
const maxRequest = decide.MostJob

// bodyLimit is how long a request's body may take to come.
const bodyLimit = 30 * time.Second

// read reads the JSON body of a request into v. On a fault it has answered already, and the caller only returns.
func read(w http.ResponseWriter, r *http.Request, v any) bool {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyLimit)) // of what cannot, the client has one
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest)).Decode(v); err != nil {
		http.Error(w, "the request: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// answer sends v as JSON.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // whoever asked may have gone
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

// refuse answers with why something was not done.
func refuse(w http.ResponseWriter, err error) {
	status := http.StatusServiceUnavailable
	var r *decide.Refusal
	if errors.As(err, &r) {
		status = map[decide.Cause]int{decide.Bad: http.StatusBadRequest, decide.Missing: http.StatusNotFound,
			decide.Unfit: http.StatusUnprocessableEntity, decide.Denied: http.StatusForbidden,
			decide.Late: http.StatusMisdirectedRequest, decide.Unsure: http.StatusServiceUnavailable}[r.Cause]
	}
	http.Error(w, err.Error(), status)
}

// status serves the state of the whole cluster.
func (h *Head) status(w http.ResponseWriter, r *http.Request) {
	s, err := h.now(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, s)
}

// listJobs serves all jobs, in the form in which users see them.
func (h *Head) listJobs(w http.ResponseWriter, r *http.Request) {
	s, err := h.now(r.Context())
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, s.Jobs)
}

// by is who asks.
func by(r *http.Request) decide.By {
	who, err := trust.Owner(r.TLS.PeerCertificates[0])
	if err != nil { // nobody whom allow lets through
		return decide.By{Role: control.Submitter}
	}
	return decide.By{Name: who.Name, Role: string(who.Role)}
}

// newJob takes a job into the queue. The answer comes once the store has it, so that a job that was
// confirmed is never lost.
func (h *Head) newJob(w http.ResponseWriter, r *http.Request) {
	var s control.Spec
	if !read(w, r, &s) {
		return
	}
	a, err := h.ask(r.Context(), func(n int64) decide.Input { return decide.Submit{Ask: n, By: by(r), Spec: s} })
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, shown(a.Job))
}

// oneJob serves one job.
func (h *Head) oneJob(w http.ResponseWriter, r *http.Request) {
	j, err := h.job(r)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, shown(j))
}

// job is the job of a request.
func (h *Head) job(r *http.Request) (j Job, err error) {
	stored := h.look(r.Context(), func(m *decide.Head) { j, err = m.Job(r.PathValue("id")) })
	if stored != nil {
		err = stored
	}
	return j, err
}

// stopJob asks a job's leader to end after the step under way; with now=1 the job is killed.
func (h *Head) stopJob(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	a, err := h.ask(r.Context(), func(n int64) decide.Input {
		return decide.Stop{Ask: n, By: by(r), Job: r.PathValue("id"), Now: q.Get("now") == "1",
			Int: q.Get("signal") == "int"}
	})
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, shown(a.Job))
}

// down ends the cluster: all agents with their processes, then the head. With keep=1 files stay where they are.
func (h *Head) down(w http.ResponseWriter, r *http.Request) {
	code := 1
	if r.URL.Query().Get("keep") == "1" {
		code = 0
	}
	a, err := h.ask(r.Context(), func(n int64) decide.Input { return decide.Down{Ask: n, Code: code} })
	if err != nil {
		refuse(w, err)
		return
	}
	limit := time.Now().Add(10 * time.Second)
	for h.connected() > 0 && time.Now().Before(limit) {
		<-time.After(10 * time.Millisecond)
	}
	answer(w, map[string]any{"ended": a.Hosts})
	h.mu.Lock()
	for _, o := range h.others {
		if o.conn != nil {
			_ = o.conn.Send(control.Message{Kind: control.Quit}) // else whoever asks for the end, ends it
		}
	}
	h.mu.Unlock()
	h.ended()
}

// connected is the number of agents that are connected now.
func (h *Head) connected() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.m.Connected()
}

// now is the cluster at this moment, as it is stored.
func (h *Head) now(ctx context.Context) (s Status, err error) {
	err = h.look(ctx, func(m *decide.Head) {
		s = Status{Head: h.self.Addr, Heads: h.states(), Pid: pid(), Version: h.o.Version, Up: h.began,
			CA: h.ca.Hash(), Hosts: m.Hosts(), Jobs: m.Jobs()}
	})
	for i := range s.Jobs {
		s.Jobs[i] = shown(s.Jobs[i])
	}
	return s, err
}
