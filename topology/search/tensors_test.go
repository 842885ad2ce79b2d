package search_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/topology/search"
)

// randomTensors are the tensors of a small forward: each reads some before it.
func randomTensors(r *rand.Rand, n int) (all []search.Tensor) {
	for i := range n {
		x := search.Tensor{Bytes: int64(r.IntN(9)), Seconds: float64(r.IntN(8)), Needed: r.IntN(2) == 0,
			Again: r.IntN(4) > 0, Away: r.IntN(4) > 0}
		for k := range i {
			if r.IntN(3) == 0 {
				x.Reads = append(x.Reads, k)
			}
		}
		all = append(all, x)
	}
	return all
}

// priced is what fates keep, move and take; ok is false where a tensor has one that it may not have, or is
// needed and has none.
func priced(all []search.Tensor, fates []search.Fate) (kept, moved int64, seconds float64, ok bool) {
	needed := make([]bool, len(all))
	for i := len(all) - 1; i >= 0; i-- {
		x := all[i]
		if !needed[i] && !x.Needed {
			if fates[i] != search.Unneeded {
				return 0, 0, 0, false
			}
			continue
		}
		switch fates[i] {
		case search.Kept:
			kept += x.Bytes
		case search.Moved:
			if moved += x.Bytes; !x.Away {
				return 0, 0, 0, false
			}
		case search.Remade:
			if seconds += x.Seconds; !x.Again {
				return 0, 0, 0, false
			}
			for _, r := range x.Reads {
				needed[r] = true
			}
		default:
			return 0, 0, 0, false
		}
	}
	return kept, moved, seconds, true
}

// TestTensorsAgainstBruteForce: within every budget, no combination of fates takes less time than the chosen
// one, which is what it says that it is.
func TestTensorsAgainstBruteForce(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		all := randomTensors(r, 1+r.IntN(8))
		c := search.Copying{PerByte: float64(r.IntN(3)), Beside: float64(r.IntN(20))}
		budget := int64(r.IntN(30))
		ways, exact := search.Frontier(all)
		require.True(t, exact)
		got := search.Best(ways, budget, c)

		want, every := math.Inf(1), map[[3]float64]bool{}
		fates := make([]search.Fate, len(all))
		for code := range int(math.Pow(4, float64(len(all)))) {
			for i := range fates {
				fates[i] = search.Fate(code >> (2 * i) & 3)
			}
			kept, moved, seconds, ok := priced(all, fates)
			if ok {
				every[[3]float64{float64(kept), float64(moved), seconds}] = true
			}
			if ok && kept <= budget {
				want = min(want, max(seconds, 2*c.PerByte*float64(moved)-c.Beside))
			}
		}
		require.ElementsMatch(t, frontierOf(every), triples(ways), "seed %d", seed)
		if math.IsInf(want, 1) {
			require.Nil(t, got, "seed %d", seed)
			continue
		}
		require.NotNil(t, got, "seed %d", seed)
		require.Equal(t, want, c.Extra(got), "seed %d", seed)
		kept, moved, seconds, ok := priced(all, got.List(len(all)))
		require.True(t, ok, "seed %d", seed)
		require.Equal(t, []any{got.Kept, got.Moved, got.Seconds}, []any{kept, moved, seconds},
			"seed %d", seed)
		require.LessOrEqual(t, kept, budget)
	}
}

// TestTensorsOfManyLayers: a long chain of layers, whose ways are thinned out, is dealt with close to what
// its cheapest bytes would cost if tensors could be divided, which nothing betters.
func TestTensorsOfManyLayers(t *testing.T) {
	var all []search.Tensor
	r := rand.New(rand.NewPCG(7, 7))
	for range 16 {
		from := len(all)
		all = append(all, search.Tensor{Bytes: 10, Needed: true}) // what goes from layer to layer stays
		for k := range 8 {
			all = append(all, search.Tensor{Bytes: 5 + int64(r.IntN(50)), Seconds: 1 + 9*r.Float64(),
				Needed: true,
				Again:  true, Reads: []int{from + r.IntN(k+1)}})
		}
	}
	dear := search.Copying{PerByte: 1e6}
	ways, exact := search.Frontier(all)
	require.False(t, exact)
	total := int64(0)
	for _, x := range all {
		total += x.Bytes
	}
	least := search.Best(ways, 16*10, dear)
	require.NotNil(t, least, "what goes from layer to layer alone stays at the end of the frontier")
	require.Zero(t, least.Moved)
	require.Zero(t, search.Best(ways, total, dear).Seconds)
	got := search.Best(ways, total/2, dear)
	require.NotNil(t, got)
	kept, _, seconds, ok := priced(all, got.List(len(all)))
	require.True(t, ok)
	require.Equal(t, got.Kept, kept)
	require.LessOrEqual(t, kept, total/2)
	require.LessOrEqual(t, seconds, 1.02*divided(all, total-total/2))
}

// divided is the least time that makes so many bytes again, where parts of tensors may be.
func divided(all []search.Tensor, bytes int64) (seconds float64) {
	left := map[int]bool{}
	for i, x := range all {
		left[i] = x.Again
	}
	for bytes > 0 {
		best := -1
		for i := range all {
			if left[i] && (best < 0 ||
				all[i].Seconds*float64(all[best].Bytes) < all[best].Seconds*float64(all[i].Bytes)) {
				best = i
			}
		}
		left[best] = false
		part := min(1, float64(bytes)/float64(all[best].Bytes))
		seconds += part * all[best].Seconds
		bytes -= all[best].Bytes
	}
	return seconds
}

func triples(ways []search.Fates) (out [][3]float64) {
	for _, w := range ways {
		out = append(out, [3]float64{float64(w.Kept), float64(w.Moved), w.Seconds})
	}
	return out
}

// frontierOf are those that no other one betters.
func frontierOf(every map[[3]float64]bool) (out [][3]float64) {
	for a := range every {
		best := true
		for b := range every {
			best = best && (a == b || b[0] > a[0] || b[1] > a[1] || b[2] > a[2])
		}
		if best {
			out = append(out, a)
		}
	}
	return out
}

// TestTensorsAlike: of ways that take as long the one that moves least is chosen, then the one that keeps least.
func TestTensorsAlike(t *testing.T) {
	c := search.Copying{PerByte: 1, Beside: 100}
	ways := []search.Fates{{Kept: 1, Moved: 9}, {Kept: 5, Moved: 3}, {Kept: 4, Moved: 3},
		{Kept: 2, Moved: 3, Seconds: 1}}
	require.Equal(t, &ways[2], search.Best(ways, 5, c))
	require.Equal(t, &ways[0], search.Best(ways, 3, c))
	require.Nil(t, search.Best(ways, 0, c))
}
