package pack

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// lengthsOf draws lengths of a log-normal kind, as conversations have.
func lengthsOf(rng *rand.Rand, n, most int) []Item {
	items := make([]Item, n)
	for i := range items {
		x := 1.0
		for range 6 {
			x *= 0.4 + 1.6*rng.Float64()
		}
		items[i] = Item{Tokens: min(most, 1+int(x*float64(most)/10)), Images: rng.IntN(4)}
	}
	return items
}

// Every algorithm puts each item in one row or leaves it, and keeps the limits; only what cannot be packed
// is left, but for hashbucket, which leaves what makes no full row.
func TestAlgorithms(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, a := range Algorithms() {
		for _, l := range []Limits{{Tokens: 1024}, {Tokens: 1024, Images: 5, Open: 4},
			{Tokens: 7, Images: 3}} {
			for _, n := range []int{0, 1, 17, 500} {
				items := lengthsOf(rng, n, 1100)
				rows, left := a.Pack(items, l)
				seen := slices.Clone(left)
				for _, row := range rows {
					tokens, images := 0, 0
					for _, i := range row {
						tokens, images = tokens+items[i].Tokens, images+items[i].Images
					}
					require.NotEmpty(t, row, a.Name)
					require.LessOrEqual(t, tokens, l.Tokens, a.Name)
					if l.Images > 0 {
						require.LessOrEqual(t, images, l.Images, a.Name)
					}
					if a.Name == "hashbucket" {
						require.GreaterOrEqual(t, float64(tokens), .9*float64(l.Tokens))
					}
					seen = append(seen, row...)
				}
				slices.Sort(seen)
				for i := range items {
					require.Equal(t, i, seen[i], a.Name)
				}
				require.Len(t, seen, n)
				if a.Name != "hashbucket" {
					_, over := split(items, l)
					require.ElementsMatch(t, over, left, a.Name)
				}
			}
		}
	}
}

// The rows of small cases, by hand.
func TestByHand(t *testing.T) {
	items := func(lengths ...int) (out []Item) {
		for _, n := range lengths {
			out = append(out, Item{Tokens: n})
		}
		return out
	}
	for _, c := range []struct {
		name string
		l    Limits
		in   []Item
		want [][]int
	}{
		{"best-fit-decreasing", Limits{Tokens: 10}, items(6, 5, 4, 3, 2), [][]int{{0, 2}, {1, 3, 4}}},
		{"largest-fit", Limits{Tokens: 10}, items(5, 5, 6, 4, 1), [][]int{{2, 3}, {0, 1}, {4}}},
		{"sequential", Limits{Tokens: 10, Open: 2}, items(6, 6, 4, 6, 4, 4), [][]int{{0, 2}, {1, 4}, {3, 5}}},
		{"sequential", Limits{Tokens: 10}, items(6, 6, 4), [][]int{{0}, {1, 2}}},
		{"max-images", Limits{Tokens: 10, Images: 3}, []Item{{1, 1}, {1, 2}, {1, 3}, {9, 0}},
			[][]int{{2}, {1, 0}, {3}}},
		{"hashbucket", Limits{Tokens: 8}, items(4, 2, 2, 8, 3), [][]int{{1, 0, 2}, {3}}},
	} {
		a, err := Find(c.name)
		require.NoError(t, err)
		rows, _ := a.Pack(c.in, c.l)
		if c.name == "hashbucket" {
			for _, r := range rows {
				slices.Sort(r)
			}
			for _, r := range c.want {
				slices.Sort(r)
			}
		}
		require.ElementsMatch(t, c.want, rows, c.name)
	}
	_, err := Find("best_fit_decreasing")
	require.NoError(t, err)
	_, err = Find("worst")
	require.ErrorContains(t, err, "hashbucket")
}

// Best-fit decreasing comes within a percent of the rows that the tokens alone need.
func TestBestFitIsTight(t *testing.T) {
	items := lengthsOf(rand.New(rand.NewPCG(3, 4)), 20_000, 8192)
	sum := 0
	for _, it := range items {
		sum += it.Tokens
	}
	rows, _ := bestFit(items, Limits{Tokens: 8192})
	require.LessOrEqual(t, float64(len(rows)), 1.01*float64(sum)/8192+1)
}
