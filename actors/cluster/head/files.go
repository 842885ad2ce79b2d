package head

import (
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// toldLimit is for answers that a host's own lfactor works out, as the plan of a run.
const toldLimit = 30 * time.Second

// file serves a piece of a file of the folder of a job's run, as its agent has it: ?at is the offset, ?mark what came
// with that, in hexadecimal digits, and ?proc the process that is asked, by default the leading one.
func (h *Head) file(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if name != control.RunJobs && !slices.Contains(control.RunFiles, name) &&
		!slices.Contains(control.RunTold, name) {
		http.Error(w, "there is no such file of a run", http.StatusNotFound)
		return
	}
	h.readFile(w, r, name)
}

// settings serves the settings of a job's run, which only those are told who may submit jobs.
func (h *Head) settings(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	err := h.m.MayTouch(by(r), r.PathValue("id"))
	h.mu.Unlock()
	if err != nil {
		refuse(w, err)
		return
	}
	h.readFile(w, r, control.RunSettings)
}

func (h *Head) readFile(w http.ResponseWriter, r *http.Request, name string) {
	q := r.URL.Query()
	m := control.Message{Kind: control.Read, Text: name}
	m.At, _ = strconv.ParseInt(q.Get("at"), 10, 64) // 0 where there is none
	m.Proc, _ = strconv.Atoi(q.Get("proc"))         // as above
	if m.At < -1 {
		http.Error(w, "at: want an offset, or -1 for the end", http.StatusBadRequest)
		return
	}
	var err error
	if m.Data, err = hex.DecodeString(q.Get("mark")); err != nil || len(m.Data) > 64 {
		http.Error(w, "mark: want what came with the offset", http.StatusBadRequest)
		return
	}
	j, err := h.job(r)
	if err != nil {
		refuse(w, err)
		return
	}
	if m.Proc < 0 || m.Proc >= len(j.Procs) {
		http.Error(w, "job "+j.ID+" has no such process", http.StatusNotFound)
		return
	}
	m.Job = j.ID
	h.mu.Lock()
	alive, conn := h.m.Live(j.ID, m.Proc)
	l := h.links[conn]
	if j.State == Ended && name != control.RunJobs { // its folder stays where its process was
		m.Spec = &control.Spec{Log: j.Spec.Log, Dir: j.Spec.Dir, User: j.Spec.User, Role: j.Spec.Role, Dirs: j.Spec.Dirs}
		alive, l = true, h.linkOf(j.Procs[m.Proc].Host)
	}
	if !alive || l == nil {
		h.mu.Unlock()
		http.Error(w, "the process is not there, or its host is away", http.StatusNotFound)
		return
	}
	answers := make(chan control.Message, 1)
	h.round++
	m.Code = h.round
	h.questions[m.Code] = &question{answers}
	l.order(m)
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.questions, m.Code)
		h.mu.Unlock()
	}()
	limit := whyLimit
	if slices.Contains(control.RunTold, name) {
		limit = toldLimit
	}
	select {
	case a := <-answers:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(a.Data) // whoever asked may have gone
	case <-time.After(limit):
		http.Error(w, "the agent does not answer", http.StatusGatewayTimeout)
	case <-r.Context().Done():
	}
}
