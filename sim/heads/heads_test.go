package heads_test

import (
	"flag"
	"fmt"
	"hash/fnv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/sim/heads"
)

var (
	long  = flag.Bool("long", false, "run the fault tier in full")
	seed  = flag.Uint64("seed", 0, "show the history of this seed")
	seeds = flag.Int("seeds", 300, "how many seeds the ordinary tier runs")
)

// TestSeeds: whatever happens to heads, their store, agents and hosts, the promises H-1 to H-8 hold after
// every event, all jobs come to their end when it is calm, and a seed has one history.
func TestSeeds(t *testing.T) {
	n := *seeds
	if *long {
		n = 10000
	}
	var events, jobs, faults, terms, lost int
	all := fnv.New64a()
	for s := range n {
		r := heads.Run(heads.Options{Seed: uint64(s + 1)})
		require.NoError(t, r.Err)
		if s%10 == 0 {
			require.Equal(t, r, heads.Run(heads.Options{Seed: uint64(s + 1)}), "one seed, one history")
		}
		events, jobs, faults, terms, lost = events+r.Events, jobs+r.Jobs, faults+r.Faults, terms+r.Terms, lost+r.Lost
		fmt.Fprintln(all, r.Hash)
	}
	t.Logf("%d seeds, hash %016x: %d events, %d jobs, %d faults, %d terms, %d hosts lost", n, all.Sum64(),
		events,
		jobs, faults, terms, lost)
	require.Greater(t, jobs, n)
	require.Greater(t, lost, n)
	require.Greater(t, terms, 2*n)
}

// TestSeed shows the history of -seed.
func TestSeed(t *testing.T) {
	if *seed == 0 {
		t.Skip("shows the history of one seed: -seed N -v")
	}
	r := heads.Run(heads.Options{Seed: *seed, Trace: func(line string) { t.Log(line) }})
	require.NoError(t, r.Err)
}
