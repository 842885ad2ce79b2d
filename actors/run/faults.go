package run

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// EnvFault plants a fault for drills and tests of `lfactor why`: leak=EDGE drops the credits of a port's
// activations, stuck=RANK@STEP blocks a rank's device in its first backward of a step, slow=RANK@STEP stops
// it for a while in each backward from that step on, kill=JOB@STEP+MICROSECONDS kills this process with
// SIGKILL so long after the first job of a kind (backward, update, snapshot, write, commit) of that step or
// a later one began; kill-always does it to every process but the leader, each time that it is started
// again.
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
	if still && len(r.Values) > core.ClosedBusy {
		r.Values[core.ClosedBusy] += float64(standsStill)
	}
	return r, err
}

// killer is a device that kills its process during a job.
type killer struct {
	host.Device
	is    func(j actors.Job) bool
	after time.Duration
}

// Run implements host.Device.
func (k killer) Run(j actors.Job) (host.Result, error) {
	if k.is(j) {
		time.AfterFunc(k.after, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
	}
	return k.Device.Run(j)
}

var killJobs = map[string]func(j actors.Job) bool{
	"backward": func(j actors.Job) bool { return j.Kind == actors.RunSegment && j.Action.Kind == plan.B },
	"update":   func(j actors.Job) bool { return j.Kind == actors.UpdatePhase },
	"snapshot": func(j actors.Job) bool { return j.Kind == actors.SnapshotJob },
	"write":    func(j actors.Job) bool { return j.Kind == actors.WriteJob },
}

// plantKill arms kill=JOB@STEP+MICROSECONDS.
func plantKill(o *host.RunOptions, job, at string) {
	stepText, delayText, _ := strings.Cut(at, "+")
	step, _ := strconv.ParseInt(stepText, 10, 64)
	micros, _ := strconv.Atoi(delayText)
	after := time.Duration(micros) * time.Microsecond
	if job == "commit" {
		commit := o.Commit
		o.Commit = func(s int64, parts []string, state []float64) error {
			if s >= step {
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

func (r *Run) plant(o *host.RunOptions) {
	kind, arg, _ := strings.Cut(os.Getenv(EnvFault), "=")
	a, b, _ := strings.Cut(arg, "@")
	n, _ := strconv.Atoi(a)
	step, _ := strconv.Atoi(b)
	switch kind {
	case "":
		return
	case "kill", "kill-always":
		if always := kind == "kill-always"; always && o.Proc == 0 || !always && r.life > 0 {
			return // the leader lives; it has done so
		}
		plantKill(o, a, b)
	case "leak":
		o.Filter = func(_ actors.Ref, m actors.Message) bool {
			return m.Kind != actors.Credit ||
				int(m.Comm) != 2*n
		}
	case "stuck", "slow":
		o.WrapDevice = func(rank int, d host.Device) host.Device {
			switch {
			case rank != n:
				return d
			case kind == "slow":
				return slowed{d, int64(step)}
			}
			return stuck{d, int64(step)}
		}
	default:
		fmt.Fprintf(r.io.Warnings,
			"note: %s=%s is no fault: want leak=PORT, stuck=RANK@STEP or slow=RANK@STEP\n", EnvFault,
			os.Getenv(EnvFault))
		return
	}
	fmt.Fprintf(r.io.Warnings, "note: planted fault %s\n", os.Getenv(EnvFault))
}
