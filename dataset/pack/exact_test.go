package pack

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// TestCost: formulas of cost, by hand.
func TestCost(t *testing.T) {
	require.Equal(t, 2*25+3*5+7.0, Cost{2, 3, 7}.Of(5))
	require.Equal(t, Cost{A: 20, B: 2400}, ModelCost(10))
	var w RankWork
	w.Add(3)
	w.Add(5)
	require.Equal(t, RankWork{34, 8, 2}, w)
	require.Equal(t, 2*34+3*8+7*2.0, Cost{2, 3, 7}.work(w))
}

// TestFitExact: with one rank a step the times are a linear function of the work, and the fit is exact;
// coefficients that would be negative are left out, and times that do not grow are refused.
func TestFitExact(t *testing.T) {
	steps := func(c Cost, each ...[]int) (out []Observed) {
		for _, lengths := range each {
			var w RankWork
			for _, l := range lengths {
				w.Add(l)
			}
			out = append(out, Observed{Ranks: []RankWork{w}, Milliseconds: c.work(w)})
		}
		return out
	}
	work := [][]int{{1, 2}, {30}, {5, 9, 14}, {4, 4, 4, 4}, {22, 3}}
	for _, c := range []Cost{{0.5, 3, 7}, {0, 3, 7}, {0.5, 0, 7}, {0.5, 3, 0}, {0, 0, 7}, {0.25, 0, 0},
		{0, 2, 0}} {
		got, err := Fit(steps(c, work...))
		require.NoError(t, err)
		require.InDeltaSlice(t, []float64{c.A, c.B, c.C}, []float64{got.A, got.B, got.C}, 1e-6, "%v", c)
	}
	got, err := Fit(steps(Cost{1, -4, 2}, work...))
	require.NoError(t, err)
	require.True(t, got.A >= 0 && got.B >= 0 && got.C >= 0, "%v", got)
	_, err = Fit(steps(Cost{}, work...))
	require.ErrorContains(t, err, "do not grow with the work")
	_, err = Fit(steps(Cost{-1, -1, -1}, work...))
	require.ErrorContains(t, err, "do not grow with the work")
	_, err = Fit(steps(Cost{1, 0, 0}, nil, nil, nil))
	require.ErrorContains(t, err, "do not grow with the work", "nobody did anything")
	// all samples of one length: what is a sample's, a token's or a square's cannot be told apart
	got, err = Fit(steps(Cost{0.5, 3, 7}, []int{10}, []int{10, 10}, []int{10, 10, 10}))
	require.NoError(t, err)
	require.InEpsilon(t, Cost{0.5, 3, 7}.Of(10), got.Of(10), 1e-9)
}

// TestSlowest: of ranks with equal work it is the mean, of very unequal ones the slowest.
func TestSlowest(t *testing.T) {
	a, b := RankWork{8, 4, 2}, RankWork{4, 2, 2}
	c := Cost{B: 1}
	require.Equal(t, RankWork{8, 4, 2}, slowest([]RankWork{a, a}, c))
	got := slowest([]RankWork{a, b}, c)
	e := math.Exp(-fitSharpness * 0.5)
	require.InDelta(t, (8+4*e)/(1+e), got.Squares, 1e-12)
	require.InDelta(t, (4+2*e)/(1+e), got.Tokens, 1e-12)
	require.InDelta(t, 2, got.Samples, 1e-12)
	require.Equal(t, RankWork{6, 3, 2}, slowest([]RankWork{a, b}, Cost{}),
		"nobody is slowest where nothing costs")
}

// best is the least possible largest sum, by trying every assignment.
func best(costs []float64, ranks int) float64 {
	least := math.Inf(1)
	n := int(math.Pow(float64(ranks), float64(len(costs))))
	for code := range n {
		sums := make([]float64, ranks)
		for _, c := range costs {
			sums[code%ranks] += c
			code /= ranks
		}
		most := 0.0
		for _, s := range sums {
			most = max(most, s)
		}
		least = min(least, most)
	}
	return least
}

// TestAssignSmall compares with every assignment there is: less than a tenth above the best on the worst
// of 200 small cases, and two thousandths on average.
func TestAssignSmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	worst, sum := 0.0, 0.0
	for range 200 {
		ranks, n := 2+rng.IntN(2), 4+rng.IntN(5)
		var loads []Load
		var costs []float64
		for range n {
			c := float64(1 + rng.IntN(60))
			loads, costs = append(loads, Load{Cost: c, Bytes: int64(c) * 10, Home: rng.IntN(ranks)}),
				append(costs, c)
		}
		b := Assign(loads, ranks, false)
		sums := sumsOf(loads, b.Rank, ranks)
		most, moved := 0.0, int64(0)
		for _, s := range sums {
			most = max(most, s)
		}
		for i, l := range loads {
			if b.Rank[i] != l.Home {
				moved += l.Bytes
			}
		}
		require.Equal(t, moved, b.Moved)
		require.InDelta(t, Imbalance(sums), b.Imbalance, 1e-12)
		over := most/best(costs, ranks) - 1
		worst, sum = max(worst, over), sum+over
	}
	t.Logf("above the best assignment: %.3f at the worst, %.4f on average", worst, sum/200)
	require.Less(t, worst, 0.1)
	require.Less(t, sum/200, 0.002)
}

// TestAssignByHand: what is over goes, the most work for its bytes first; nothing moves where all is even.
func TestAssignByHand(t *testing.T) {
	b := Assign([]Load{{4, 1, 0}, {4, 9, 0}, {4, 9, 0}, {4, 5, 1}}, 2, false)
	require.Equal(t, Balance{Rank: []int{1, 0, 0, 1}, Moved: 1}, b, "of equal work the fewest bytes go")
	b = Assign([]Load{{8, 8, 0}, {2, 1, 0}, {2, 2, 0}, {6, 1, 1}, {3, 1, 1}, {3, 0, 1}}, 2, false)
	require.Equal(t, Balance{Rank: []int{0, 0, 0, 1, 1, 1}}, b)
	require.Equal(t, Balance{Rank: []int{0, 1}}, Assign([]Load{{0, 3, 0}, {0, 3, 1}}, 2, false),
		"no work at all")
	require.Equal(t, Balance{Rank: []int{}}, Assign(nil, 2, false))
}

// TestPairsByHand: both works are evened out; samples keep their number of a rank where that is asked.
func TestPairsByHand(t *testing.T) {
	pairs := []Pair{{4, 1, 10, 100, 0}, {4, 1, 10, 30, 0}, {0, 1, 10, 20, 1}, {0, 1, 10, 10, 1}}
	b := AssignPairs(pairs, 2, 2, true)
	require.Zero(t, b.Vision+b.Language)
	require.Equal(t, 1.0, b.Tokens)
	count := [2]int{}
	vision := [2]float64{}
	moved := int64(0)
	for i, r := range b.Rank {
		count[r]++
		vision[r] += pairs[i].Vision
		if r != pairs[i].Home {
			moved += pairs[i].Bytes
		}
	}
	require.Equal(t, [2]int{2, 2}, count)
	require.Equal(t, [2]float64{4, 4}, vision)
	require.Equal(t, moved, b.Moved)
	// work is even, tokens are not: the cap alone asks for a change
	long := []Pair{{1, 1, 100, 1, 0}, {1, 1, 100, 1, 0}, {1, 1, 10, 1, 1}, {1, 1, 10, 1, 1}}
	require.Equal(t, []int{0, 0, 1, 1}, AssignPairs(long, 2, 2, true).Rank, "a cap of twice the mean holds")
	got := AssignPairs(long, 2, 1.2, true)
	require.Equal(t, 1.0, got.Tokens)
	require.EqualValues(t, 2, got.Moved)
}

// TestImbalance: largest over mean, less 1.
func TestImbalance(t *testing.T) {
	require.Equal(t, 0.5, Imbalance([]float64{3, 1, 2}))
	require.Zero(t, Imbalance([]float64{0, 0}))
}

// TestOnlineByHand: rows of the algorithms that take what comes, at the borders of room and of images.
func TestOnlineByHand(t *testing.T) {
	items := []Item{{4, 0}, {6, 2}, {5, 1}, {5, 3}, {11, 0}, {1, 0}}
	for _, c := range []struct {
		name  string
		l     Limits
		items []Item
		rows  string
		left  string
	}{
		{"sequential", Limits{Tokens: 10}, items, "[[0 1] [2 3] [5]]", "[4]"},
		{"sequential", Limits{Tokens: 10, Images: 3}, items, "[[0 1] [2] [3 5]]", "[4]"},
		{"sequential", Limits{Tokens: 10, Open: 2}, []Item{{6, 0}, {7, 0}, {4, 0}, {3, 0}, {9, 0}, {1, 0}},
			"[[0 2] [1 3] [4 5]]", "[]"},
		{"max-images", Limits{Tokens: 10}, items, "[[3] [1] [2 0 5]]", "[4]"},
		{"max-images", Limits{Tokens: 11}, items, "[[3 1] [2 0] [4] [5]]", "[]"},
		{"max-images", Limits{Tokens: 10, Images: 3}, []Item{{1, 1}, {1, 2}, {1, 1}, {8, 0}, {7, 0}},
			"[[1 0] [2 3] [4]]", "[]"},
		{"none", Limits{Tokens: 5}, items, "[[0] [2] [3] [5]]", "[1 4]"},
		{"largest-fit", Limits{Tokens: 10}, items, "[[1 0] [2 3] [5]]", "[4]"},
	} {
		a, err := Find(c.name)
		require.NoError(t, err)
		rows, left := a.Pack(c.items, c.l)
		require.Equal(t, c.rows, fmt.Sprint(rows), "%s %v", c.name, c.l)
		require.Equal(t, c.left, fmt.Sprint(left), "%s %v", c.name, c.l)
	}
	_, err := Find("tightest")
	require.ErrorContains(t, err, `no packing is named "tightest"; there are best-fit`)
	a, err := Find("largest_fit")
	require.NoError(t, err)
	require.Equal(t, "largest-fit", a.Name)
}

// TestShares pins who gets what on made-up batches: a hash of all assignments, beside how even they are.
// -rewrite writes testdata/shares anew.
func TestShares(t *testing.T) {
	datadriven.RunTest(t, "testdata/shares", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for seed := range uint64(6) {
			rng := rand.New(rand.NewPCG(seed, 21))
			ranks := 2 << rng.IntN(4)
			sum := fnv.New64a()
			switch d.Cmd {
			case "assign":
				b := Assign(packsOf(rng, ranks, 4, 4096), ranks, seed%2 == 1)
				fmt.Fprintln(sum, b.Rank)
				fmt.Fprintf(&out, "%d ranks: imbalance %.4g, moved %d, shares %016x\n", ranks,
					b.Imbalance, b.Moved,
					sum.Sum64())
			case "pairs":
				b := AssignPairs(pairsOf(rng, ranks, 12), ranks, 1.02+0.1*float64(seed%3), seed%2 == 1)
				fmt.Fprintln(sum, b.Rank)
				fmt.Fprintf(&out,
					"%d ranks: vision %.4g, language %.4g, tokens %.4g, moved %d, shares %016x\n", ranks,
					b.Vision, b.Language, b.Tokens, b.Moved, sum.Sum64())
			case "rows":
				items := make([]Item, 200)
				for i := range items {
					items[i] = Item{Tokens: 1 + rng.IntN(700), Images: rng.IntN(4)}
				}
				for _, a := range Algorithms() {
					rows, left := a.Pack(items, Limits{Tokens: 640, Images: int(seed) % 3 * 6,
						Open: 1 + int(seed)})
					fmt.Fprintln(sum, a.Name, rows, left)
				}
				fmt.Fprintf(&out, "rows %016x\n", sum.Sum64())
			}
		}
		return out.String()
	})
}
