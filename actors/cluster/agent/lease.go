package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/actors/host"
)

// A process says something at each control.Beats, and its agent watches it by that: also the one that
// leads its job, which watches the others and which nobody else does. What runs, but gets no processor or
// is long in one call, has more time than what is stopped or waits for a device.
const (
	leaseStopped = control.Stopped
	leaseRunning = 10 * time.Second
)

// errHung ends a process that does not keep its lease.
var errHung = errors.New("it says nothing")

// overdue reports whether a process has to be given up that was silent for so long, and whose state is
// what the system says of it.
func overdue(quiet time.Duration, running bool) bool {
	if running {
		return quiet >= leaseRunning
	}
	return quiet >= leaseStopped
}

// listenTo hears a process until its end. One that has said once that it lives, and says nothing for too
// long, is killed. Time in which this agent did not run itself is not the process's silence.
func (a *Agent) listenTo(p *proc) {
	beats := false
	for {
		m, err := p.talk.Hear(func(q control.Quiet) error {
			if !beats || q.For < leaseStopped {
				return nil
			}
			state := host.StateOf(p.Pid)
			if !overdue(q.For, state == "" || state == host.Running) {
				return nil
			}
			p.hung = fmt.Sprintf("said nothing for %v, being %s,", q.For.Round(100*time.Millisecond), state)
			return errHung
		})
		if errors.Is(err, errHung) {
			a.logf("job %s process %d (pid %d): %s and is killed", p.Job, p.Proc.Proc, p.Pid, p.hung)
			p.kill()
			return
		}
		if err != nil {
			return
		}
		beats = beats || m.Kind == control.Beat
		a.fromProc(p, m)
	}
}
