package pack

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// bestFitSlow looks through all rows for each item: what bestFit is to give, whatever the lengths.
func bestFitSlow(items []Item, l Limits) (rows [][]int) {
	order, _ := split(items, l)
	byLength(items, order)
	type state struct{ room, images, turn int }
	var at []state
	turn := 0
	for _, i := range order {
		best := -1
		for r, s := range at {
			if s.room < items[i].Tokens || s.room == 0 || l.Images > 0 &&
				s.images+items[i].Images > l.Images {
				continue
			}
			if best < 0 || s.room < at[best].room || s.room == at[best].room && s.turn < at[best].turn {
				best = r
			}
		}
		if best < 0 {
			best = len(rows)
			rows, at = append(rows, nil), append(at, state{room: l.Tokens})
		}
		turn++
		rows[best] = append(rows[best], i)
		at[best] = state{at[best].room - items[i].Tokens, at[best].images + items[i].Images, turn}
	}
	return rows
}

func TestBestFitEqualsSlow(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		items := make([]Item, r.IntN(200))
		kinds := 1 + r.IntN(60)
		for i := range items {
			items[i] = Item{Tokens: 1 + r.IntN(kinds)*3, Images: r.IntN(3)}
		}
		l := Limits{Tokens: 20 + r.IntN(100), Images: r.IntN(5)}
		rows, _ := bestFit(items, l)
		require.Equal(t, bestFitSlow(items, l), rows, "%+v", l)
	}
}

// TestBestFitOfFewLengths: a million items of three lengths. Where rows of one room lay in a list that was
// moved up for each item, this took the square of their number: minutes.
func TestBestFitOfFewLengths(t *testing.T) {
	items := make([]Item, 1_000_000)
	for i := range items {
		items[i] = Item{Tokens: []int{700, 200, 100}[i%3], Images: i % 2}
	}
	for _, images := range []int{0, 4} {
		rows, left := bestFit(items, Limits{Tokens: 1000, Images: images})
		require.Empty(t, left)
		require.Len(t, rows, 333_334)
	}
}
