package run

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lfactor/lfactor/kernels"
)

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
