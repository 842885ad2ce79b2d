package agent

import (
	"encoding/json"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/agent/decide"
	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/host"
)

// Because is what a process's actors wait for.
type Because struct {
	Waits  []host.Status `json:"waits"`
	Silent *host.Silent  `json:"silent,omitempty"` // it does not answer
}

// BecauseOf reads the answer of a process that the head passes on; nil is that of one whose host is away, or that is silent.
func BecauseOf(answer json.RawMessage, proc, pid int, on string, away bool) (b Because, err error) {
	if answer != nil {
		if err := json.Unmarshal(answer, &b); err != nil {
			return b, err
		}
	}
	switch {
	case away:
		b.Silent = &host.Silent{Proc: proc, PID: pid, State: "out of reach"}
	case answer == nil:
		b.Silent = &host.Silent{Proc: proc, PID: pid, State: "gone or stuck"}
	}
	if b.Silent != nil {
		b.Silent.State += " on " + on
	}
	return b, nil
}

// whyLimit is what a process may take to answer.
const whyLimit = 2 * time.Second

// because asks a process of this host what its actors wait for.
func (a *Agent) because(p *proc, m control.Message) {
	var b Because
	var err error
	if b.Waits, b.Silent, err = host.AskProcess(p.log, m.Proc, whyLimit); err != nil {
		a.logf("why of job %s process %d: %v", m.Job, m.Proc, err)
	}
	if b.Waits == nil && b.Silent == nil {
		b.Silent = &host.Silent{Proc: m.Proc, PID: p.pid, State: "there and does not answer"}
	}
	if m.Data, err = json.Marshal(b); err != nil {
		a.logf("why of job %s process %d: %v", m.Job, m.Proc, err)
		return
	}
	m.Kind = control.Because
	a.step(decide.Found{M: m})
}

// silence is what is known of a process that has said nothing for so long.
func silence(p *proc, quiet time.Duration) decide.Silent {
	state := host.StateOf(p.pid)
	return decide.Silent{Life: p.life, For: quiet, Running: state == "" || state == host.Running,
		State: string(state)}
}
