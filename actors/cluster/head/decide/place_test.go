package decide

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/control"
	"github.com/lfactor/lfactor/topology"
)

// linked are links between hosts at rates that a function gives, each way.
func linked(hosts []string, rate func(a, b string) float64) (out []control.Link) {
	for _, a := range hosts {
		for _, b := range hosts {
			if a != b {
				out = append(out, control.Link{From: a, To: b, Rate: rate(a, b)})
			}
		}
	}
	return out
}

// TestArrange: neighbours in a pipeline get the fast ways, and hosts behind slow ones are left over; without
// measurements hosts are taken by name.
func TestArrange(t *testing.T) {
	hosts := []string{"h1", "h2", "h3", "h4", "h5"}
	line := topology.Grid(4, 1, 1).Talks(4)[:0:0]
	for i := range 3 {
		line = append(line, topology.Talk{A: i, B: i + 1, Weight: 4})
	}
	require.Equal(t, hosts[:4], arrange(hosts, 4, 4, line, nil))
	fast := map[string]bool{"h1h3": true, "h3h5": true, "h2h5": true}
	links := linked(hosts, func(a, b string) float64 {
		if fast[min(a, b)+max(a, b)] {
			return 1e9
		}
		return 1e8
	})
	got := arrange(hosts, 4, 4, line, links)
	for i := range 3 {
		require.True(t, fast[min(got[i], got[i+1])+max(got[i], got[i+1])], got)
	}
	require.NotContains(t, got, "h4")
	require.Equal(t, hosts[:4], arrange(hosts, 4, 4, nil, links), "nobody talks")
	// a way that is slow one way, and one that could not be measured
	links = linked(hosts, func(a, b string) float64 {
		if a == "h2" && b == "h1" {
			return 1e6
		}
		return 1e9
	})
	links[slices.IndexFunc(links, func(l control.Link) bool { return l.From == "h1" && l.To == "h3" })].Rate = 0
	got = arrange(hosts, 2, 2, line[:1], links)
	require.NotSubset(t, []string{"h1", "h2"}, got)
	require.NotSubset(t, []string{"h1", "h3"}, got)
	got = arrange(hosts, 2, 4, []topology.Talk{{A: 0, B: 1, Weight: 64}, {A: 1, B: 2, Weight: 1}}, links)
	require.NotSubset(t, []string{"h1", "h2"}, got, "two processes a host")
}

// TestArrangeNearOptimal: swaps find what trying everything finds, or next to it.
func TestArrangeNearOptimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	worst := 1.0
	for range 100 {
		var hosts []string
		for i := range 6 {
			hosts = append(hosts, fmt.Sprint("h", i))
		}
		by := map[string]float64{}
		links := linked(hosts, func(a, b string) float64 {
			k := min(a, b) + max(a, b)
			if by[k] == 0 {
				by[k] = math.Exp(rng.Float64()*4) * 1e8
			}
			return by[k]
		})
		talks := topology.Grid(2, 2, 1).Talks(4)
		cost := func(at []string) (sum float64) {
			for _, x := range talks {
				sum += x.Weight / by[min(at[x.A], at[x.B])+max(at[x.A], at[x.B])]
			}
			return sum
		}
		best := math.Inf(1)
		permute(slices.Clone(hosts), 4, 0, func(at []string) { best = min(best, cost(at)) })
		worst = max(worst, cost(arrange(hosts, 4, 4, talks, links))/best)
	}
	require.Less(t, worst, 1.3)
	t.Logf("at worst %.2f times the best", worst)
}

// permute calls f with every choice of n of the hosts in every order.
func permute(hosts []string, n, at int, f func([]string)) {
	if at == n {
		f(hosts[:n])
		return
	}
	for k := at; k < len(hosts); k++ {
		hosts[at], hosts[k] = hosts[k], hosts[at]
		permute(hosts, n, at+1, f)
		hosts[at], hosts[k] = hosts[k], hosts[at]
	}
}
