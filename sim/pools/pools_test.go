package pools

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/rounds"
)

var long = flag.Bool("long", false, "10,000 seeds, and all planted faults")

// drawn is the world of a seed: a pool of samplers, judges or an environment, with members of all kinds.
func drawn(seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 3))
	w := &world{seed: seed, places: 1 + rng.IntN(5), faulty: rng.Float64() * 0.8,
		o: pool.Options{Silence: silence, Start: start, Longest: longest}}
	if rng.IntN(2) == 0 {
		w.o.Tries = 3 + rng.IntN(8)
		if rng.IntN(4) == 0 {
			w.broken = rng.IntN(w.places + 1)
		} else if rng.IntN(4) == 0 {
			w.deadly, w.faulty = true, 0.9
		}
	}
	if rng.IntN(2) == 0 {
		w.o.Pause = func(vain int) actors.Duration { return min(5*ms<<vain, 200*ms) }
	}
	w.o.Eager = rng.IntN(3) == 0
	if rng.IntN(3) == 0 {
		w.plan = rounds.Schedule{Staleness: rng.Int64N(4), Updates: 1}
		if rng.IntN(2) == 0 {
			w.plan.Span = 1 + rng.Int64N(60)
		}
		w.groups, w.last = 1+rng.IntN(4), 6
		return w
	}
	w.queue, w.chains, w.turns = &pool.Queue{Places: w.places, Wait: 500 * ms}, 1+rng.IntN(12), 1+rng.IntN(4)
	if rng.IntN(3) == 0 { // replicas of a server: tasks are given together
		w.batch, w.queue.Hold = true, 1+rng.IntN(4)
	}
	if rng.IntN(3) == 0 {
		w.queue.Limit = 1 + rng.IntN(4)
	}
	if rng.IntN(2) == 0 {
		w.queue.Most = 2 + rng.IntN(2)
	}
	if rng.IntN(4) == 0 {
		w.room = 1 + rng.IntN(w.places)
	}
	return w
}

// TestSeeds: whatever members do, the promises hold.
func TestSeeds(t *testing.T) {
	t.Parallel()
	n := uint64(2000)
	if *long {
		n = 10_000
	} else {
		t.Log("2,000 of 10,000 seeds: -long has the others")
	}
	lost, over := 0, 0
	for seed := range n {
		w := drawn(seed)
		a, err := w.run()
		require.NoError(t, err)
		if lost += w.watch.lost; w.watch.over != nil {
			over++
		}
		if seed%10 == 0 {
			again := drawn(seed)
			b, err := again.run()
			require.NoError(t, err)
			require.Equal(t, a.Hash, b.Hash, "seed %d", seed)
		}
	}
	require.Greater(t, lost, int(n))
	require.Greater(t, over, int(n)/50, "pools that are over are met too")
	require.Less(t, over, int(n)/3)
}

// BenchmarkPool is the simulator's speed with a pool: events a second.
func BenchmarkPool(b *testing.B) {
	events := uint64(0)
	for b.Loop() {
		w := drawn(1)
		w.places, w.chains, w.turns, w.faulty, w.room = 8, 64, 16, 0.1, 0
		w.queue = &pool.Queue{Places: w.places, Wait: 500 * ms}
		r, err := w.run()
		if err != nil {
			b.Fatal(err)
		}
		events += r.Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
