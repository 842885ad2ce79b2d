package run

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/stages/family"
)

// EnvFault plants a fault for drills and tests of `lfactor why`: leak=EDGE drops the credits of a port's
// activations, stuck=RANK@STEP blocks a rank's device in its first backward of a step, slow=RANK@STEP stops
// it for a while in each backward from that step on, slowdata=PROCESS@STEP does so to the loaders of a
// process, kill=JOB@STEP+MICROSECONDS kills this process with SIGKILL so long after the first job of a kind
// (backward, update, snapshot, write, commit) of that step or a later one began; kill-always does it to
// every process but the leader, each time that it is started again; gate=FILE gives the data of a step when
// the number in a file is as large, so that a run waits behind it for as long as whoever strikes it takes.
const EnvFault = "LFACTOR_FAULT"

// stuck is a device that never comes back from one job.
type stuck struct {
	host.Device
	step int64
}

// Run implements host.Device.
func (s stuck) Run(j actors.Job) (host.Result, error) {
	if j.Step == s.step && j.Action.Kind == plan.B {
		select {}
	}
	return s.Device.Run(j)
}

// slowed is a device that stands still in every backward from a step on, as with a quota of processors.
type slowed struct {
	host.Device
	step int64
}

// standsStill is how long it does.
const standsStill = 150 * time.Millisecond

// Run implements host.Device.
func (s slowed) Run(j actors.Job) (host.Result, error) {
	still := j.Step >= s.step && j.Action.Kind == plan.B && j.Segment == 0
	if still {
		<-time.After(standsStill)
	}
	r, err := s.Device.Run(j)
	if still && r.Values != nil {
		used := core.UsageOf(r.Values)
		used.Busy += float64(standsStill)
		r.Values = used.Put(r.Values)
	}
	return r, err
}

// dataStandsStill is how long a loader does for each step.
const dataStandsStill = 600 * time.Millisecond

// killer is a device that kills its process during a job.
type killer struct {
	host.Device
	is    func(j actors.Job) bool
	after time.Duration
}

// Run implements host.Device.
func (k killer) Run(j actors.Job) (host.Result, error) {
	if k.is(j) {
		// one may always kill oneself
		time.AfterFunc(k.after, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	}
	return k.Device.Run(j)
}

// gateLooks lies between two looks into the file of a gate.
const gateLooks = 5 * time.Millisecond

// gateAt is how many steps the file of a gate lets pass.
func gateAt(file string) (steps int64, err error) {
	text, err := os.ReadFile(file)
	if err == nil {
		steps, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	return steps, err
}

// plantGate arms gate=FILE. Evaluations, whose steps are negative, pass.
func plantGate(o *host.RunOptions, file string) (why string) {
	if _, err := gateAt(file); err != nil {
		return "want a file with the number of steps that pass: " + err.Error()
	}
	read, leave, left := o.Batches, o.Leave, make(chan struct{})
	leaving := sync.OnceFunc(func() { close(left) })
	o.Leave = func() {
		leaving()
		if leave != nil {
			leave()
		}
	}
	o.Batches = func(s int64, dp int) ([]family.Microbatch, error) {
		for {
			if steps, err := gateAt(file); err != nil {
				return nil, fmt.Errorf("the gate of a planted fault: %w", err)
			} else if s <= steps {
				return read(s, dp)
			}
			select {
			case <-time.After(gateLooks):
			case <-left:
				return nil, errLeft
			}
		}
	}
	return ""
}

var killJobs = map[string]func(j actors.Job) bool{
	"backward": func(j actors.Job) bool { return j.Kind == actors.RunSegment && j.Action.Kind == plan.B },
	"update":   func(j actors.Job) bool { return j.Kind == actors.UpdatePhase },
	"snapshot": func(j actors.Job) bool { return j.Kind == actors.SnapshotJob },
	"write":    func(j actors.Job) bool { return j.Kind == actors.WriteJob },
}

// killMoment reads STEP+MICROSECONDS, of which the second may be left out.
func killMoment(at string) (step int64, after time.Duration, err error) {
	stepText, delayText, delayed := strings.Cut(at, "+")
	step, err = strconv.ParseInt(stepText, 10, 64)
	micros := 0
	if err == nil && delayed {
		micros, err = strconv.Atoi(delayText)
	}
	return step, time.Duration(micros) * time.Microsecond, err
}

// plantKill arms kill=JOB@STEP+MICROSECONDS.
func plantKill(o *host.RunOptions, job string, step int64, after time.Duration) {
	if job == "commit" {
		commit := o.Commit
		o.Commit = func(s int64, parts []string, state []float64) error {
			if s >= step {
				// one may always kill oneself
				time.AfterFunc(after, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
			}
			return commit(s, parts, state)
		}
		return
	}
	is := killJobs[job]
	o.WrapDevice = func(_ int, d host.Device) host.Device {
		return killer{d, func(j actors.Job) bool { return j.Step >= step && is(j) }, after}
	}
}

// plant does what EnvFault says, and says so, or that it is nothing that can be done.
func (r *Run) plant(o *host.RunOptions) {
	text := os.Getenv(EnvFault)
	if text == "" {
		return
	}
	if why := r.fault(o, text); why != "" {
		fmt.Fprintf(r.io.Warnings, "note: %s=%s is no fault: %s\n", EnvFault, text, why)
		return
	}
	fmt.Fprintf(r.io.Warnings, "note: planted fault %s\n", text)
}

const wantFault = "want leak=PORT, stuck=RANK@STEP, slow=RANK@STEP, slowdata=PROCESS@STEP, gate=FILE or " +
	"kill=JOB@STEP+MICROSECONDS"

// fault plants one, or says why that cannot be.
func (r *Run) fault(o *host.RunOptions, text string) (why string) {
	kind, arg, _ := strings.Cut(text, "=")
	if kind == "gate" {
		return plantGate(o, arg)
	}
	a, b, at := strings.Cut(arg, "@")
	if kind == "kill" || kind == "kill-always" {
		if _, known := killJobs[a]; !known && a != "commit" {
			return "there is no job " + strconv.Quote(a)
		}
		step, after, err := killMoment(b)
		if err != nil {
			return wantFault
		}
		if kind == "kill-always" && o.Proc > 0 || kind == "kill" && r.life == 0 {
			plantKill(o, a, step, after) // else the leader lives, or it has done so
		}
		return ""
	}
	n, err := strconv.Atoi(a)
	step, stepErr := strconv.ParseInt(b, 10, 64)
	if err != nil || at && stepErr != nil || at == (kind == "leak") {
		return wantFault
	}
	switch {
	case kind == "leak" && !r.crosses(n):
		return fmt.Sprintf("no activations go from rank to rank by port %d", n)
	case kind == "leak":
		o.Filter = func(_ actors.Ref, m actors.Message) bool {
			return m.Kind != actors.Credit || int(m.Comm) != 2*n
		}
	case kind == "slowdata" && (n < 0 || n >= max(1, o.Procs)):
		return fmt.Sprintf("there is no process %d", n)
	case kind == "slowdata" && n == o.Proc:
		read := o.Batches
		o.Batches = func(s int64, dp int) ([]family.Microbatch, error) {
			if s >= step {
				<-time.After(dataStandsStill)
			}
			return read(s, dp)
		}
	case kind == "slowdata":
	case kind != "stuck" && kind != "slow":
		return wantFault
	case n < 0 || n >= r.layout.World():
		return fmt.Sprintf("there is no rank %d", n)
	default:
		o.WrapDevice = func(rank int, d host.Device) host.Device {
			switch {
			case rank != n, kind == "stuck" && r.life > 0: // it hung, and was started again
				return d
			case kind == "slow":
				return slowed{d, step}
			}
			return stuck{d, step}
		}
	}
	return ""
}

// crosses reports whether activations go from one rank to another by a port.
func (r *Run) crosses(port int) bool {
	for rank := range r.layout.World() {
		l := r.layout.RankLayout(rank, r.layout.Owner(rank, r.cfg.Run.Plan.Procs))
		if port < 0 || port >= len(l.Ports) {
			return false
		}
		p := l.Ports[port]
		if l.Routes != nil && l.Routes(p.ID, false) != nil || l.Peer(p.From) != l.Peer(p.To) {
			return true
		}
	}
	return false
}
