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
	"github.com/lfactor/lfactor/pipeline/schedule"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/topology"
)

// TestSeeds runs 200 seeds with faults, each twice and on one and two threads: every event is the same.
// Faults that a run must survive are survived; the others end in a report or a cycle of waits, never in silence.
func TestSeeds(t *testing.T) {
	l := described(t, topology.Grid(2, 2, 2), 4, 2, 1, 2).Layout()
	l.Run.SaveEvery = 1
	length := int64(sim.New(l, modelled(), sim.Options{}).Run().Time)
	kinds := []sim.FaultKind{sim.Straggler, sim.SlowLink, sim.CutLink, sim.LateLoader, sim.Crash,
		sim.LostMsg, sim.LateMsg, sim.DupMsg, sim.Restart}
	hashes := map[uint64]bool{}
	ended, reported := 0, 0
	for seed := range uint64(200) {
		o := sim.Options{Seed: seed, Jitter: 0.2, Whole: seed%2 == 0,
			Faults: sim.Draw(seed, 1+int(seed%3), 8, length, kinds...)}
		a := sim.New(l, modelled(), o).Run()
		old := runtime.GOMAXPROCS(1 + int(seed%2))
		b := sim.New(l, modelled(), o).Run()
		runtime.GOMAXPROCS(old)
		require.Equal(t, a, b, "seed %d", seed)
		hashes[a.Hash] = true
		harmless := sim.Harmless(o.Faults)
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

// TestRestart: a rank that dies at any moment and comes back costs time and nothing else: all steps are
// committed, what the dead epoch left is given back, and the monitor sees no promise broken.
func TestRestart(t *testing.T) {
	t.Parallel()
	rewound := 0
	for _, whole := range []bool{false, true} {
		for seed := range uint64(150) {
			l := described(t, topology.Grid(2, 2, 2), 4, 2, 1, 3).Layout()
			l.Run.SaveEvery = 1
			l.Memory.Foot = func(_ int, j *actors.Job) (int64, int64) {
				if j.Action.Kind == plan.F {
					return 2, 1
				}
				return 2, 0
			}
			o := sim.Options{Seed: seed, Jitter: 0.2, Whole: whole}
			plain := sim.New(l, modelled(), o).Run()
			o.Faults = sim.Draw(seed, 1+int(seed%3), 8, int64(plain.Time), sim.Restart)
			var mon *sim.Monitor
			run := o
			if !whole {
				mon = sim.NewMonitor(l)
				run = mon.Attach(o)
			}
			r := sim.New(l, modelled(), run).Run()
			if whole {
				require.True(t, r.Failed == "" && r.Stall == nil, "seed %d with %v: %s %v", seed, o.Faults,
					r.Failed, r.Stall)
				require.Len(t, r.Steps, 3)
				require.Zero(t, r.Leaked+int64(r.Open), "seed %d", seed)
			} else {
				require.Empty(t, mon.End(r, 3), "seed %d with %v", seed, o.Faults)
			}
			for i, s := range r.Steps {
				require.EqualValues(t, i+1, s.Step)
			}
			if r.Time > plain.Time {
				rewound++
			}
		}
	}
	require.Greater(t, rewound, 150)
}

// TestOffload: activations that go to host memory and come back cost nothing while the copy engine keeps up
// with the work, and the difference where it does not; a rank's other engines go on meanwhile.
func TestOffload(t *testing.T) {
	step := func(perByte float64, bytes int64) float64 {
		d := described(t, topology.Grid(1, 1, 1), 8, 1, 0, 1)
		f, b := []core.Segment{{Flops: 1000, Away: bytes}}, []core.Segment{{Flops: 2000, Back: bytes}}
		d.Update = []core.Segment{{Ready: true}}
		var err error
		d.Program, err = schedule.Build("gpipe", schedule.Shape{Ranks: 1, Micro: 8})
		require.NoError(t, err)
		d.Passes = func(a plan.Action) []core.Segment {
			if a.Kind == plan.F {
				return f
			}
			return b
		}
		p := modelled()
		p.Copy = perByte
		r := sim.New(d.Layout(), p, sim.Options{}).Run()
		require.Len(t, r.Steps, 1)
		return r.Steps[0].Time
	}
	without := step(0, 0)
	require.InEpsilon(t, without, step(1, 400), 0.05, "hidden behind the passes")
	slow := step(1, 4000)
	require.Greater(t, slow, without+8*(2*4000-3000)*0.9,
		"two copies a microbatch of 4 µs beside 3 µs of work")
	require.Less(t, slow, without+8*2*4000, "and still at the same time as the work")
}

// TestUpdateThroughHost: an update whose state comes from host memory and goes back takes as long as the
// work, or as the copies where these take longer, and the rank's peak counts what it holds meanwhile.
func TestUpdateThroughHost(t *testing.T) {
	step := func(perByte float64, bytes int64) *sim.Result {
		d := described(t, topology.Grid(1, 1, 1), 1, 1, 0, 1)
		d.Update = core.Chain([]core.Segment{{Ready: true}, {Flops: 1000, Through: bytes}})
		d.Passes = func(plan.Action) []core.Segment { return []core.Segment{{Flops: 1000}} }
		p := modelled()
		p.Copy = perByte
		l := d.Layout()
		l.Memory.Base, l.Memory.Update = func(int) int64 { return 100 }, func(int) int64 { return 70 }
		r := sim.New(l, p, sim.Options{}).Run()
		require.Len(t, r.Steps, 1)
		require.EqualValues(t, 170, r.Peak[0])
		return r
	}
	without := step(1, 0).Steps[0].Time
	require.Equal(t, without, step(1, 1000).Steps[0].Time, "as long as the work")
	copied := step(1, 4000).Steps[0].Time
	require.InDelta(t, without+3000, copied, 20, "as long as the copies")
	require.Equal(t, copied+4000, step(2, 4000).Steps[0].Time)
}

// TestNondeterminismIsCaught plants what may never be in a behaviour or a price: the wall clock,
// map order, another goroutine.
func TestNondeterminismIsCaught(t *testing.T) {
	l := described(t, topology.Grid(2, 1, 2), 4, 1, 1, 1).Layout()
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
	later  bool // only in an epoch after the first, which a rank that dies and comes back begins
}

func keep(f func(m *actors.Message)) func(*actors.Message) sim.Fate {
	return func(m *actors.Message) sim.Fate { f(m); return sim.Pass }
}

func lose(*actors.Message) sim.Fate  { return sim.Lose }
func twice(*actors.Message) sim.Fate { return sim.Twice }

var bugs = map[string]bug{
	"close not acknowledged": {actors.Closed, lose, false},
	"closed twice":           {actors.Closed, twice, false},
	"closed another step":    {actors.Closed, keep(func(m *actors.Message) { m.Step++ }), false},
	"credit lost":            {actors.Credit, lose, false},
	"credit twice":           {actors.Credit, twice, false},
	"one credit too many": {actors.Credit,
		keep(func(m *actors.Message) { m.Values = []float64{2} }), false},
	"no credit in a credit": {actors.Credit,
		keep(func(m *actors.Message) { m.Values = []float64{0} }), false},
	"credit on another edge": {actors.Credit, keep(func(m *actors.Message) { m.Comm ^= 1 }), false},
	"activation lost":        {actors.Activation, lose, false},
	"activation twice":       {actors.Activation, twice, false},
	"activation of another micro": {actors.Activation,
		keep(func(m *actors.Message) { m.Action.Micro++ }), false},
	"activation for another stage": {actors.Activation,
		keep(func(m *actors.Message) { m.Action.Stage++ }), false},
	"cotangent lost":  {actors.Cotangent, lose, false},
	"cotangent twice": {actors.Cotangent, twice, false},
	"cotangent of another micro": {actors.Cotangent,
		keep(func(m *actors.Message) { m.Action.Micro++ }), false},
	"part lost":               {actors.Part, lose, false},
	"part twice":              {actors.Part, twice, false},
	"part of another member":  {actors.Part, keep(func(m *actors.Message) { m.Member ^= 1 }), false},
	"part of another segment": {actors.Part, keep(func(m *actors.Message) { m.Segment++ }), false},
	"open lost":               {actors.Open, lose, false},
	"open twice":              {actors.Open, twice, false},
	"open of a later step":    {actors.Open, keep(func(m *actors.Message) { m.Step++ }), false},
	"open of another epoch":   {actors.Open, keep(func(m *actors.Message) { m.Epoch++ }), false},
	"ready lost":              {actors.Ready, lose, false},
	"ready twice":             {actors.Ready, twice, false},
	"ready for another step":  {actors.Ready, keep(func(m *actors.Message) { m.Step++ }), false},
	"commit lost":             {actors.Commit, lose, false},
	"commit twice":            {actors.Commit, twice, false},
	"commit of another step":  {actors.Commit, keep(func(m *actors.Message) { m.Step-- }), false},
	"commit with another rate": {actors.Commit,
		keep(func(m *actors.Message) {
			v := core.VerdictOf(m.Values)
			v.LR++
			m.Values = v.Values()
		}), false},
	"load lost":  {actors.Load, lose, false},
	"load twice": {actors.Load, twice, false},
	"data lost":  {actors.Batch, lose, false},
	"data of another micro": {actors.Batch,
		keep(func(m *actors.Message) { m.Action.Micro++ }), false},
	"join lost":   {actors.Join, lose, true},
	"rewind lost": {actors.Rewind, lose, true},
	"rewind to a later step": {actors.Rewind,
		keep(func(m *actors.Message) { m.Step++; m.Epoch++ }), true},
	"rewound lost":                   {actors.Rewound, lose, true},
	"rewound twice":                  {actors.Rewound, twice, true},
	"open of the epoch before":       {actors.Open, keep(func(m *actors.Message) { m.Epoch-- }), true},
	"closed in the epoch before":     {actors.Closed, keep(func(m *actors.Message) { m.Epoch-- }), true},
	"ready in the epoch before":      {actors.Ready, keep(func(m *actors.Message) { m.Epoch-- }), true},
	"commit in the epoch before":     {actors.Commit, keep(func(m *actors.Message) { m.Epoch-- }), true},
	"load of the epoch before":       {actors.Load, keep(func(m *actors.Message) { m.Epoch-- }), true},
	"data of the epoch before":       {actors.Batch, keep(func(m *actors.Message) { m.Epoch-- }), true},
	"activation of the epoch before": {actors.Activation, keep(func(m *actors.Message) { m.Epoch-- }), true},
	"part of the epoch before":       {actors.Part, keep(func(m *actors.Message) { m.Epoch-- }), true},
	"credit of the epoch before":     {actors.Credit, keep(func(m *actors.Message) { m.Epoch-- }), true},
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
		if b.later {
			left = 1
			o.Faults = []sim.Fault{{Kind: sim.Restart, Rank: int(seed) % len(l.Ranks), At: 1 +
				int64(seed*7919%40000), For: 1 + int64(seed*31%5000)}}
		}
		o.Mutate = func(_ actors.Ref, m *actors.Message) sim.Fate {
			if m.Kind != b.kind || b.later && m.Epoch == 0 && m.Kind != actors.Join {
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

// TestPlantedBugs: the tester finds every planted bug within 1,000 seeds, raises no false alarm in 200, and
// shrinks each find to a run of at most 30 events, or to the smallest run in which the bug can show.
func TestPlantedBugs(t *testing.T) {
	t.Parallel()
	big := described(t, topology.Grid(2, 1, 2), 4, 1, 1, 2)
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
		for _, mesh := range []topology.Mesh{topology.Grid(1, 1, 1), topology.Grid(2, 1, 1),
			topology.Grid(1, 1, 2)} {
			small := described(t, mesh, 1, 1, 0, 1)
			small.Update = []core.Segment{{Ready: true}}
			if mesh.Len(topology.TP) > 1 {
				small.Update[0].Comms = []core.Comm{{Group: sim.GroupTP, Bytes: 8}}
			}
			for seed := range uint64(60) {
				if fault, n := hunt(small, &b, seed); fault != "" && (least == 0 || n < least) {
					least = n
				}
			}
		}
		require.NotZero(t, least, "%s does not shrink", name)
		most := uint64(36) // six of them are the commit of a step by two ranks
		if b.later {       // a rank's end and its way back are 15 events that no smaller run is without
			most += 15
		}
		require.LessOrEqual(t, least, most, fmt.Sprintf("%s shrinks to %d events", name, least))
	}
}
