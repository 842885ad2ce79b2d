package pack

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Item is a sample to pack.
type Item struct {
	Tokens int // at least 1
	Images int // images and videos, for algorithms that bound them
}

// Limits of a row.
type Limits struct {
	Tokens int // of a row; an item over it is packed nowhere
	Images int // of a row; 0 means any number
	Open   int // rows that Sequential keeps open; 0 means 1
}

// Algorithm is a way of packing.
type Algorithm struct {
	Name string
	Doc  string // one sentence for people
	// Pack lays items into rows, as their numbers. left are those in no row.
	Pack func(items []Item, l Limits) (rows [][]int, left []int)
}

var algorithms []Algorithm

func register(a Algorithm) bool {
	algorithms = append(algorithms, a)
	return true
}

// Algorithms returns what is registered, by name.
func Algorithms() []Algorithm {
	out := slices.Clone(algorithms)
	slices.SortFunc(out, func(a, b Algorithm) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Find returns the algorithm of a name. Dashes and underscores are the same.
func Find(name string) (Algorithm, error) {
	var names []string
	for _, a := range Algorithms() {
		if strings.ReplaceAll(name, "_", "-") == a.Name {
			return a, nil
		}
		names = append(names, a.Name)
	}
	return Algorithm{}, fmt.Errorf("no packing is named %q; there are %s", name, strings.Join(names, ", "))
}

// split returns the numbers of items that fit a row alone, and of those that do not.
func split(items []Item, l Limits) (fit, over []int) {
	for i, it := range items {
		if it.Tokens > l.Tokens || l.Images > 0 && it.Images > l.Images {
			over = append(over, i)
		} else {
			fit = append(fit, i)
		}
	}
	return fit, over
}

// byLength orders numbers of items by length, longest first, then by number.
func byLength(items []Item, order []int) {
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(items[b].Tokens, items[a].Tokens) })
}

// lengthSet is a set of lengths with quick search for neighbours.
type lengthSet []uint64

func newLengthSet(most int) lengthSet { return make(lengthSet, most/64+1) }
func (s lengthSet) add(n int)         { s[n/64] |= 1 << (n % 64) }
func (s lengthSet) remove(n int)      { s[n/64] &^= 1 << (n % 64) }

// atMost is the largest member up to n, or -1; it looks at 64 lengths at a time.
func (s lengthSet) atMost(n int) int {
	if n < 0 {
		return -1
	}
	w := n / 64
	for x := s[w] & (^uint64(0) >> (63 - n%64)); ; x = s[w] {
		if x != 0 {
			return w*64 + 63 - bits.LeadingZeros64(x)
		}
		if w--; w < 0 {
			return -1
		}
	}
}

// atLeast is the smallest member from n on, or -1.
func (s lengthSet) atLeast(n int) int {
	for w, x := n/64, s[n/64]&(^uint64(0)<<(n%64)); ; x = s[w] {
		if x != 0 {
			return w*64 + bits.TrailingZeros64(x)
		}
		if w++; w == len(s) {
			return -1
		}
	}
}
