package run

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/kernels"
)

// encodes reports whether a rank is one of the encoder's own.
func (r *Run) encodes(rank int) bool { return rank >= r.layout.Design.Mesh.Size() }

// device is the name of a rank's device.
func (r *Run) device(rank int) string {
	if e := r.cfg.Run.Plan.Encoder.Device; r.encodes(rank) && e != "same" {
		return e
	}
	return r.cfg.Run.Device
}

// joins tells whether ranks of all processes are on devices that a library joins: not on one that all share,
// and not where other processes do not know which devices auto has found.
func joins(device string) bool { return device == "cuda" }

// backends opens a backend for each of this process's ranks, which share its cores; the second result closes them.
func backends(r *Run, ranks []int) (func(rank int) kernels.Backend, func(), error) {
	c := r.cfg
	n := c.Run.Plan.Threads
	if n == 0 {
		n = max(1, runtime.GOMAXPROCS(0)/max(1, c.Run.Plan.Procs))
	}
	of, closeAll, err := host.OpenEach(r.device, ranks,
		kernels.Options{Threads: n, Strict: c.Run.Strict, Dir: c.Run.Log.Dir})
	var cannot *host.OpenError
	if errors.As(err, &cannot) {
		key := "device"
		if r.encodes(cannot.Rank) && c.Run.Plan.Encoder.Device != "same" {
			key = "plan.encoder.device"
		}
		return nil, nil, c.Fault(key, err.Error(), "set "+key+": cpu")
	}
	if err != nil {
		return nil, nil, err
	}
	w := r.watchAiling(of, ranks)
	return of, func() { w.end(); closeAll() }, nil
}

// ailingLook is how often devices are asked for faults that no call fails by; they answer in microseconds.
const ailingLook = 10 * time.Second

// ailing tells of such faults of this process's devices while it runs.
type ailing struct {
	devices []kernels.Ailing
	say     func(text string)
	stop    chan struct{}
	wg      sync.WaitGroup
}

// watchAiling begins to look at the devices of ranks that have such faults. Process 0 says them in the run's
// log, others on stderr, which their logs are made of.
func (r *Run) watchAiling(of func(rank int) kernels.Backend, ranks []int) *ailing {
	a := &ailing{stop: make(chan struct{}), say: func(text string) {
		if r.report != nil {
			r.report.say("%s", text)
			return
		}
		fmt.Fprintln(os.Stderr, text)
	}}
	for _, rank := range ranks {
		if d, ok := of(rank).(kernels.Ailing); ok {
			a.devices = append(a.devices, d)
		}
	}
	if len(a.devices) > 0 {
		tick := time.NewTicker(ailingLook)
		a.wg.Go(func() { defer tick.Stop(); a.watch(tick.C) })
	}
	return a
}

// watch looks at every tick.
func (a *ailing) watch(tick <-chan time.Time) {
	for {
		select {
		case <-a.stop:
			return
		case <-tick:
			a.look()
		}
	}
}

func (a *ailing) look() {
	for _, d := range a.devices {
		for _, text := range d.Ails() {
			a.say("! device " + text)
		}
	}
}

// end looks once more, so that what came up in the last seconds is said too.
func (a *ailing) end() {
	close(a.stop)
	a.wg.Wait()
	a.look()
}
