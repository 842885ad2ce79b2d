package head

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
)

// whyLimit is how long the agents of a job may take to answer.
const whyLimit = 3 * time.Second

// Because is the answer of one process of a job: Answer is an agent.Because, nil where its host is away or silent.
type Because struct {
	Proc   int             `json:"proc"`
	Host   string          `json:"host"`
	Pid    int             `json:"pid"`
	Away   bool            `json:"away,omitempty"` // the host has no connection with the head
	Answer json.RawMessage `json:"answer,omitempty"`
}

// question is a why that waits for answers.
type question struct {
	answers chan control.Message
}

// why asks every process of a job what its actors wait for.
func (h *Head) why(w http.ResponseWriter, r *http.Request) {
	j, err := h.job(r)
	if err != nil {
		refuse(w, err)
		return
	}
	h.mu.Lock()
	q := &question{make(chan control.Message, len(j.Procs))}
	h.round++
	round := h.round
	h.questions[round] = q
	out, open := []Because{}, 0
	for n, p := range j.Procs {
		b := Because{Proc: n, Host: p.Host, Pid: p.Pid}
		alive, conn := h.m.Live(j.ID, n)
		if l := h.links[conn]; alive && l != nil {
			l.order(control.Message{Kind: control.AskWhy, Job: j.ID, Proc: n, Code: round})
			open++
		} else {
			b.Away = alive
		}
		out = append(out, b)
	}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		delete(h.questions, round)
		h.mu.Unlock()
	}()
	if j.State != Running {
		http.Error(w, "job "+j.ID+" is "+string(j.State)+": only one that runs waits for something",
			http.StatusNotFound)
		return
	}
	limit := time.After(whyLimit)
	for ; open > 0; open-- {
		select {
		case m := <-q.answers:
			if m.Proc < len(out) {
				out[m.Proc].Answer = m.Data
			}
		case <-limit:
			answer(w, out)
			return
		case <-r.Context().Done():
			return
		}
	}
	answer(w, out)
}

// because takes the answer of a process.
func (h *Head) because(m control.Message) {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.questions[m.Code]
	if q == nil || m.Proc < 0 || m.Proc >= h.m.Count(m.Job) {
		return
	}
	select {
	case q.answers <- m:
	default: // a process has answered twice
	}
}
