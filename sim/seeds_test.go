package sim_test

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/pipeline/plan"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// TestSeeds runs 200 seeds with faults, each twice and on one and two threads: every event is the same. Faults that a run must
// survive are survived; the others end in a report or a cycle of waits, never in silence.
func TestSeeds(t *testing.T) {
	l := described(t, topology.Mesh{PP: 2, DP: 2, TP: 2}, 4, 2, 1, 2).Layout()
	length := int64(sim.New(l, modelled(), sim.Options{}).Run().Time)
	kinds := []sim.FaultKind{sim.Straggler, sim.SlowLink, sim.CutLink, sim.LateLoader, sim.Crash, sim.LostMsg, sim.LateMsg}
	hashes := map[uint64]bool{}
	ended, reported := 0, 0
	for seed := range uint64(200) {
		o := sim.Options{Seed: seed, Jitter: 0.2, Whole: seed%2 == 0, Faults: sim.Draw(seed, 1+int(seed%3), 8, length, kinds...)}
		a := sim.New(l, modelled(), o).Run()
		old := runtime.GOMAXPROCS(1 + int(seed%2))
		b := sim.New(l, modelled(), o).Run()
		runtime.GOMAXPROCS(old)
		require.Equal(t, a, b, "seed %d", seed)
		hashes[a.Hash] = true
		harmless := !slices.ContainsFunc(o.Faults, func(f sim.Fault) bool { return !f.Harmless() })
		if a.Stall == nil && a.Failed == "" {
			ended++
			require.Len(t, a.Steps, 2)
			continue
		}
		reported++
		require.False(t, harmless, "seed %d with %v: %v %s", seed, o.Faults, a.Stall, a.Failed)
		require.True(t, a.Failed != "" || len(a.Stall.Chain) > 0)
	}
	require.Len(t, hashes, 200, "every seed gives another order of events")
	require.Greater(t, ended, 50)
	require.Greater(t, reported, 50)
}

// TestNondeterminismIsCaught plants what may never be in a behaviour or a price: the wall clock, map order, another goroutine.
func TestNondeterminismIsCaught(t *testing.T) {
	l := described(t, topology.Mesh{PP: 2, DP: 1, TP: 2}, 4, 1, 1, 1).Layout()
	var ticks atomic.Int64
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			default:
				ticks.Add(1)
				runtime.Gosched()
			}
		}
	}()
	many := map[int64]bool{}
	for i := range int64(100) {
		many[i] = true
	}
	for name, planted := range map[string]func() int64{
		"wall clock": func() int64 { return time.Now().UnixNano() % 7 },
		"map order": func() int64 {
			for k := range many {
				return k
			}
			return 0
		},
		"goroutine": func() int64 { runtime.Gosched(); return ticks.Load() % 1000 },
	} {
		caught := false
		for range 50 {
			p := modelled()
			p.Job = func(_ int, _ *actors.Job, s *core.Segment) int64 { return s.Flops + planted() }
			a, b := sim.New(l, p, sim.Options{}).Run(), sim.New(l, p, sim.Options{}).Run()
			caught = caught || a.Hash != b.Hash
		}
		require.True(t, caught, name)
	}
}

// bug plants one fault of a protocol: it changes the nth message of a kind.
type bug struct {
	kind   actors.Kind
	change func(m *actors.Message) sim.Fate
}

func keep(f func(m *actors.Message)) func(*actors.Message) sim.Fate {
	return func(m *actors.Message) sim.Fate { f(m); return sim.Pass }
}

func lose(*actors.Message) sim.Fate  { return sim.Lose }
func twice(*actors.Message) sim.Fate { return sim.Twice }

var bugs = map[string]bug{
	"close not acknowledged":       {actors.Closed, lose},
	"closed twice":                 {actors.Closed, twice},
	"closed another step":          {actors.Closed, keep(func(m *actors.Message) { m.Step++ })},
	"credit lost":                  {actors.Credit, lose},
	"credit twice":                 {actors.Credit, twice},
	"one credit too many":          {actors.Credit, keep(func(m *actors.Message) { m.Values = []float64{2} })},
	"no credit in a credit":        {actors.Credit, keep(func(m *actors.Message) { m.Values = []float64{0} })},
	"credit on another edge":       {actors.Credit, keep(func(m *actors.Message) { m.Comm ^= 1 })},
	"activation lost":              {actors.Activation, lose},
	"activation twice":             {actors.Activation, twice},
	"activation of another micro":  {actors.Activation, keep(func(m *actors.Message) { m.Action.Micro++ })},
	"activation for another stage": {actors.Activation, keep(func(m *actors.Message) { m.Action.Stage++ })},
	"cotangent lost":               {actors.Cotangent, lose},
	"cotangent twice":              {actors.Cotangent, twice},
	"cotangent of another micro":   {actors.Cotangent, keep(func(m *actors.Message) { m.Action.Micro++ })},
	"part lost":                    {actors.Part, lose},
	"part twice":                   {actors.Part, twice},
	"part of another member":       {actors.Part, keep(func(m *actors.Message) { m.Member ^= 1 })},
	"part of another segment":      {actors.Part, keep(func(m *actors.Message) { m.Segment++ })},
	"open lost":                    {actors.Open, lose},
	"open twice":                   {actors.Open, twice},
	"open of a later step":         {actors.Open, keep(func(m *actors.Message) { m.Step++ })},
	"open of another epoch":        {actors.Open, keep(func(m *actors.Message) { m.Epoch++ })},
	"load lost":                    {actors.Load, lose},
	"load twice":                   {actors.Load, twice},
	"data lost":                    {actors.Batch, lose},
	"data of another micro":        {actors.Batch, keep(func(m *actors.Message) { m.Action.Micro++ })},
}

// hunt runs one seed with a bug planted and returns what the monitor says and how many events it took.
func hunt(d *sim.Description, b *bug, seed uint64) (string, uint64) {
	l := d.Layout()
	l.Memory.Foot = func(_ int, j *actors.Job) (int64, int64) {
		if j.Action.Kind == plan.F {
			return 2, 1
		}
		return 2, 0
	}
	mon := sim.NewMonitor(l)
	o := mon.Attach(sim.Options{Seed: seed, Jitter: 0.5})
	if b != nil {
		left := 1 + int(seed%7)
		o.Mutate = func(_ actors.Ref, m *actors.Message) sim.Fate {
			if m.Kind != b.kind {
				return sim.Pass
			}
			if left--; left != 0 {
				return sim.Pass
			}
			return b.change(m)
		}
	}
	r := sim.New(l, modelled(), o).Run()
	return mon.End(r, d.Steps), r.Events
}

// TestPlantedBugs: the tester finds every planted bug within 1,000 seeds, raises no false alarm in 200, and shrinks each
// find to a run of at most 30 events, or to the smallest run in which the bug can show.
func TestPlantedBugs(t *testing.T) {
	big := described(t, topology.Mesh{PP: 2, DP: 1, TP: 2}, 4, 1, 1, 2)
	for seed := range uint64(200) {
		fault, _ := hunt(big, nil, seed)
		require.Empty(t, fault, "false alarm at seed %d", seed)
	}
	require.GreaterOrEqual(t, len(bugs), 20)
	for _, name := range slices.Sorted(maps.Keys(bugs)) {
		b := bugs[name]
		found := func(d *sim.Description, seeds uint64) (events uint64, ok bool) {
			for seed := range seeds {
				if fault, n := hunt(d, &b, seed); fault != "" {
					return n, true
				}
			}
			return 0, false
		}
		_, ok := found(big, 1000)
		require.True(t, ok, "%s is not found", name)
		least := uint64(0)
		for _, mesh := range []topology.Mesh{{PP: 1, DP: 1, TP: 1}, {PP: 2, DP: 1, TP: 1}, {PP: 1, DP: 1, TP: 2}} {
			small := described(t, mesh, 1, 1, 0, 1)
			small.Update = []core.Segment{{}}
			if mesh.TP > 1 {
				small.Update[0].Comms = []core.Comm{{Group: sim.GroupTP, Bytes: 8}}
			}
			if n, ok := found(small, 7); ok && (least == 0 || n < least) {
				least = n
			}
		}
		require.NotZero(t, least, "%s does not shrink", name)
		require.LessOrEqual(t, least, uint64(30), fmt.Sprintf("%s shrinks to %d events", name, least))
	}
}
