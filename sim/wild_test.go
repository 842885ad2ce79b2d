package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// TestGivenUp: a step in which a rank's router gives logits that are not finite changes nothing on any rank, with ranks
// lost at any time too, and later updates go on counting from the one before it. Three such steps in a row end the run.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		l := described(t, topology.Grid(2, 2, 2), 4, 2, 1, 6).Layout()
		l.Run.SaveEvery = 1 + int64(seed%2)
		l.Run.LR = func(step int64) float64 { return float64(step) }
		o := sim.Options{Seed: seed, Jitter: 0.5, Faults: []sim.Fault{{Kind: sim.Wild, Rank: int(seed % 8),
			Nth: 2}, {Kind: sim.Wild, Rank: int(seed / 8 % 8), Nth: 2 + int(seed%3)}}}
		if seed%4 == 0 {
			o.Faults = append(o.Faults, sim.Fault{Kind: sim.Restart, Rank: int(seed % 7), At: 1 +
				int64(seed*7919%200000), For: 1 + int64(seed*31%5000)})
		}
		mon := sim.NewMonitor(l)
		r := sim.New(l, modelled(), mon.Attach(o)).Run()
		require.Empty(t, mon.End(r, 6), "seed %d with %v", seed, o.Faults)
	}
	l := described(t, topology.Grid(2, 2, 2), 4, 2, 1, 6).Layout()
	var o sim.Options
	for step := 2; step < 5; step++ {
		o.Faults = append(o.Faults, sim.Fault{Kind: sim.Wild, Rank: 3, Nth: step})
	}
	r := sim.New(l, modelled(), o).Run()
	require.Contains(t, r.Failed, "step 4: rank 3: ")
	require.Contains(t, r.Failed, "no update was made in 3 steps in a row")
}

// TestAllSurvived draws faults of all kinds that a run must survive, several at once: what they do to one another, such
// as a message that is doubled twice or a rank that ends while a job of it gives a step up, breaks no promise either.
func TestAllSurvived(t *testing.T) {
	t.Parallel()
	kinds := []sim.FaultKind{sim.Straggler, sim.SlowLink, sim.LateLoader, sim.LateMsg, sim.DupMsg, sim.DupMsg,
		sim.Restart, sim.Wild, sim.Wild, sim.Succession}
	for seed := range uint64(400) {
		l := redundant(t, seed)
		p := modelled()
		o := sim.Options{Seed: seed, Jitter: 0.5, Late: 1 + int64(seed%3)*20000}
		length := int64(sim.New(l, p, o).Run().Time)
		o.Faults = sim.Draw(seed, 2+int(seed%4), len(l.Ranks), length, kinds...)
		for i := range o.Faults {
			o.Faults[i].Nth = 1 + o.Faults[i].Nth%6
		}
		if !sim.Harmless(o.Faults) {
			continue
		}
		mon := sim.NewMonitor(l)
		r := sim.New(l, p, mon.Attach(o)).Run()
		require.Empty(t, mon.End(r, 6), "seed %d with %v", seed, o.Faults)
	}
}
