package dataset

import (
	"cmp"
	"slices"

	"github.com/lfactor/lfactor/dataset/pack"
)

// Packing is how documents are laid into rows of SeqLen tokens.
type Packing string

// The ways of packing. Each looks at one window of the global order at a time.
const (
	PackNone     Packing = "none"      // one document a row
	PackFirstFit Packing = "first-fit" // in order, each into the first row with room
	PackBestFit  Packing = "best-fit"  // longest first, each into the row that it fills best

	// Those of package pack, which also bound the images of a row.

	PackLargestFit Packing = "largest-fit"
	PackSequential Packing = "sequential"
	PackMaxImages  Packing = "max-images"
)

// Packings lists the ways of packing.
func Packings() []Packing {
	return []Packing{PackNone, PackFirstFit, PackBestFit, PackLargestFit, PackSequential, PackMaxImages}
}

// rows lays items into rows within the limits, all of which they keep alone. Rows are in the order of their
// first items, and items of a row ascend.
func (p Packing) rows(items []pack.Item, l pack.Limits) [][]int {
	var bins [][]int
	if p == PackLargestFit || p == PackSequential || p == PackMaxImages || l.Images > 0 && p == PackBestFit {
		name := string(p)
		if p == PackBestFit {
			name = "best-fit-decreasing"
		}
		a, err := pack.Find(name)
		if err != nil {
			panic("dataset: " + err.Error())
		}
		bins, _ = a.Pack(items, l)
		for _, b := range bins {
			slices.Sort(b)
		}
		slices.SortFunc(bins, func(a, b []int) int { return a[0] - b[0] })
		return bins
	}
	lengths := make([]int, len(items))
	for i, it := range items {
		lengths[i] = it.Tokens
	}
	return p.pack(lengths, l.Tokens)
}

// pack lays items of the given lengths, none over capacity, into bins. Items of a bin ascend, and bins are
// in the order of their first items, so that packing disturbs the global order as little as it can.
func (p Packing) pack(lengths []int, capacity int) [][]int {
	order := make([]int, len(lengths))
	for i := range order {
		order[i] = i
	}
	if p == PackBestFit {
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(lengths[b], lengths[a]) })
	}
	var bins [][]int
	var room []int
	for _, item := range order {
		k := p.choose(room, lengths[item])
		if k < 0 {
			k = len(bins)
			bins, room = append(bins, nil), append(room, capacity)
		}
		bins[k] = append(bins[k], item)
		room[k] -= lengths[item]
	}
	for _, b := range bins {
		slices.Sort(b)
	}
	slices.SortFunc(bins, func(a, b []int) int { return a[0] - b[0] })
	return bins
}

// choose returns the bin for an item of n tokens, -1 for a new one.
func (p Packing) choose(room []int, n int) int {
	best := -1
	for k, r := range room {
		if r < n || p == PackNone {
			continue
		}
		if p == PackFirstFit {
			return k
		}
		if best < 0 || r < room[best] {
			best = k
		}
	}
	return best
}
