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
