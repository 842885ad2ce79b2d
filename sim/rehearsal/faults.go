package rehearsal

import (
	"context"
	"fmt"
	"hash/fnv"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim"
)

// Script draws a seed's faults for a run of so many nanoseconds; kinds are those to draw from, nil for harmless ones.
func (r *Rehearsal) Script(seed uint64, length int64, kinds []sim.FaultKind) []sim.Fault {
	if kinds == nil {
		kinds = []sim.FaultKind{sim.Straggler, sim.SlowLink, sim.LateLoader, sim.LateMsg}
	}
	return sim.Draw(seed, 1+int(seed%3), r.Layout.Design.Mesh.Size(), length, kinds...)
}

// Tally counts how runs with faults ended. Hash is that of all events of all runs, so that two machines
// can compare theirs.
type Tally struct {
	Ended   int    `json:"ended"`
	Stalled int    `json:"stalled"`
	Failed  int    `json:"failed"`
	Hash    string `json:"hash"`
}

// TryFaults runs n seeds with faults, each twice, once under a monitor of the protocols: both runs must agree in every
// event, no promise may be broken, and a run must end well unless its faults allow otherwise.
func (r *Rehearsal) TryFaults(ctx context.Context, first uint64, n int,
	kinds []sim.FaultKind, see func(done int)) (t Tally, err error) {
	length := int64(r.Run(sim.Options{}).Time)
	sum := fnv.New64a()
	for i := range n {
		if ctx.Err() != nil {
			return t, exit.With(fmt.Errorf("interrupted after %d of %d seeds", i, n), exit.Interrupted)
		}
		if see != nil {
			see(i)
		}
		seed := first + uint64(i)
		faults := r.Script(seed, length, kinds)
		harmless := sim.Harmless(faults)
		a, broken := r.Watch(sim.Options{Seed: seed, Faults: faults}, harmless)
		b := r.Run(sim.Options{Seed: seed, Faults: faults})
		if a.Hash != b.Hash {
			return t, fmt.Errorf("seed %d: two runs differ: %016x and %016x", seed, a.Hash, b.Hash)
		}
		if broken != "" {
			return t, fmt.Errorf("seed %d: the protocol is broken: %s; look at it with lfactor sim "+
				"replay %d --shrink", seed, broken, seed)
		}
		fmt.Fprintf(sum, "%016x", a.Hash)
		switch {
		case a.Stall != nil:
			t.Stalled++
		case a.Failed != "":
			t.Failed++
		default:
			t.Ended++
			continue
		}
		if harmless {
			return t, fmt.Errorf("seed %d: a run with faults that it must survive did not end: %s; look "+
				"at it with lfactor sim replay %d --shrink", seed, Why(a), seed)
		}
	}
	t.Hash = fmt.Sprintf("%016x", sum.Sum64())
	return t, nil
}
