package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/pipeline/plan"
)

// envFault plants a fault for drills and tests of `lfactor why`: leak=EDGE drops the credits of a port's activations,
// stuck=RANK@STEP blocks a rank's device in its first backward of a step.
const envFault = "LFACTOR_FAULT"

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

func (r *run) plant(o *host.RunOptions) {
	kind, arg, _ := strings.Cut(os.Getenv(envFault), "=")
	a, b, _ := strings.Cut(arg, "@")
	n, _ := strconv.Atoi(a)
	step, _ := strconv.Atoi(b)
	switch kind {
	case "":
		return
	case "leak":
		o.Filter = func(_ actors.Ref, m actors.Message) bool { return m.Kind != actors.Credit || int(m.Comm) != 2*n }
	case "stuck":
		o.WrapDevice = func(rank int, d host.Device) host.Device {
			if rank == n {
				return stuck{d, int64(step)}
			}
			return d
		}
	default:
		fmt.Fprintf(os.Stderr, "note: %s=%s is no fault: want leak=PORT or stuck=RANK@STEP\n", envFault, os.Getenv(envFault))
		return
	}
	fmt.Fprintf(os.Stderr, "note: planted fault %s\n", os.Getenv(envFault))
}
