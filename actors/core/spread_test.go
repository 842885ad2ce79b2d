package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSpread: whatever the placement of processes on hosts, a copy of each state outlives every loss of process 0 with
// another and of the leader's host with another, if a process does; there are no more copies than is said, and where
// hosts have the same number of processes each, no process keeps far more of them than others.
func TestSpread(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0x59))
		procs, each, rank := 2+r.IntN(12), 1+r.IntN(3), 0
		var by [][]int
		var hosts []string
		n, even := 1+r.IntN(procs), seed%2 == 0
		for p := range procs {
			by = append(by, nil)
			for range each {
				by[p] = append(by[p], rank)
				rank++
			}
			at := p * n / procs
			if !even {
				at = r.IntN(n)
			}
			hosts = append(hosts, fmt.Sprint("h", at))
		}
		if seed%5 == 0 {
			hosts = nil
		}
		spreadOutlives(t, by, hosts, fmt.Sprintf("seed %d: %v on %v", seed, by, hosts))
	}
	grid := func(hosts, each int) (by [][]int, at []string) {
		for p := range hosts * each {
			by, at = append(by, []int{p}), append(at, fmt.Sprint(p/each))
		}
		return by, at
	}
	by, at := grid(16, 8)
	had := make([]int, len(by))
	for _, buddies := range Spread(by, at) {
		for _, b := range buddies {
			had[b]++
		}
	}
	require.LessOrEqual(t, slices.Max(had), 3, had)
	by, at = grid(1024, 8) // as many processes as a job may have
	require.Len(t, Spread(by, at), 8192)
}

// spreadOutlives holds who keeps copies to what may be lost.
func spreadOutlives(t *testing.T, by [][]int, hosts []string, what string) {
	t.Helper()
	at := hosts
	if at == nil {
		for p := range by {
			at = append(at, fmt.Sprint(p))
		}
	}
	var losses []func(p int) bool
	for x := range by {
		losses = append(losses, func(p int) bool { return p == 0 || p == x }, func(p int) bool { return p == x },
			func(p int) bool { return at[p] == at[0] || at[p] == at[x] }, func(p int) bool { return at[p] == at[x] })
	}
	out, owner := Spread(by, hosts), map[int]int{}
	for p, ranks := range by {
		for _, r := range ranks {
			owner[r] = p
		}
	}
	names := slices.Compact(slices.Sorted(slices.Values(at)))
	for r, buddies := range out {
		p := owner[r]
		if len(names) > 2 && at[p] != at[0] {
			require.Len(t, buddies, 1, what)
		}
		require.LessOrEqual(t, len(buddies), 2, what)
		for k, lost := range losses {
			left := slices.ContainsFunc(buddies, func(b int) bool { return !lost(owner[b]) })
			some := slices.IndexFunc(by, func(ranks []int) bool { return !lost(owner[ranks[0]]) }) >= 0
			require.True(t, left || !some || !lost(p), "%s: loss %d takes rank %d, and the copies that %v keep", what, k, r, buddies)
		}
	}
}
