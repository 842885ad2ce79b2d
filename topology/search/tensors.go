package search

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Tensor is what one operation of a forward leaves for the backward, as a choice of what to do with it sees it.
type Tensor struct {
	Bytes   int64   // that it takes while it waits
	Seconds float64 // of computing it again
	Reads   []int   // earlier tensors that computing it again needs
	Needed  bool    // the backward reads it, whatever is computed again
	Again   bool    // it may be computed again
	Away    bool    // it may go to host memory
}

// Fate is what becomes of a tensor between forward and backward.
type Fate uint8

// A tensor that nothing needs is let go by itself.
const (
	Unneeded Fate = iota
	Kept
	Moved
	Remade
)

// Fates is one way to deal with all tensors: what stays, what is moved each way, and what is computed again.
type Fates struct {
	Kept, Moved int64 // bytes
	Seconds     float64
	last        *fate
}

// fate is the choice for one tensor, and behind it those for later ones.
type fate struct {
	tensor int
	what   Fate
	next   *fate
}

// List has the fate of each of n tensors.
func (f *Fates) List(n int) []Fate {
	out := make([]Fate, n)
	for x := f.last; x != nil; x = x.next {
		out[x.tensor] = x.what
	}
	return out
}

// mostWays is how many ways are looked at after each tensor. Beyond it of those that keep and move about as
// much few stay, so that the frontier is no longer exact.
const mostWays = 1024

// Frontier lists all ways to deal with tensors that no other way betters in what stays, what is moved and
// the time of computing again; exact tells whether none is missing. Tensors are gone through from the last
// to the first: a tensor that is computed again needs those that it reads, so that what earlier ones are
// needed for is known by then, and ways which leave the same tensors needed can be compared.
func Frontier(all []Tensor) (ways []Fates, exact bool) {
	total, seconds := int64(1), 0.0
	for i := range all {
		total, seconds = total+all[i].Bytes, seconds+all[i].Seconds
	}
	usual := seconds / float64(total)
	prices := []float64{usual / 16, usual / 2, 4 * usual}
	open := map[string][]Fates{"": {{}}}
	exact = true
	for i := len(all) - 1; i >= 0; i-- {
		next := map[string][]Fates{}
		for _, key := range sortedKeys(open) {
			step(all, i, key, open[key], next)
		}
		left := 0
		for key, w := range next {
			next[key] = undominated(w)
			left += len(next[key])
		}
		for grain := total/256 + 1; left > mostWays && grain < 2*total; grain *= 2 {
			exact, left = false, 0
			for key, w := range next {
				next[key] = thinned(w, grain, prices)
				left += len(next[key])
			}
		}
		open = next
	}
	return open[""], exact
}

// sortedKeys are the keys in order, since the result must not depend on the order of a map.
func sortedKeys(m map[string][]Fates) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// step adds every fate of tensor i to ways that leave the same earlier tensors needed, which key lists.
func step(all []Tensor, i int, key string, ways []Fates, next map[string][]Fates) {
	x := &all[i]
	needed := readKey(key)
	at := slices.Index(needed, i)
	if at < 0 && !x.Needed {
		next[key] = append(next[key], ways...)
		return
	}
	if at >= 0 {
		needed = slices.Delete(needed, at, at+1)
	}
	add := func(key string, what Fate, kept, moved int64, seconds float64) {
		for _, w := range ways {
			next[key] = append(next[key], Fates{w.Kept + kept, w.Moved + moved, w.Seconds + seconds,
				&fate{i, what, w.last}})
		}
	}
	rest := writeKey(needed)
	add(rest, Kept, x.Bytes, 0, 0)
	if x.Away && x.Bytes > 0 {
		add(rest, Moved, 0, x.Bytes, 0)
	}
	if x.Again {
		for _, r := range x.Reads {
			if !slices.Contains(needed, r) {
				needed = append(needed, r)
			}
		}
		slices.Sort(needed)
		add(writeKey(needed), Remade, 0, 0, x.Seconds)
	}
}

// readKey gives the list that writeKey was given.
func readKey(key string) (list []int) {
	for at := 0; at < len(key); at += 4 {
		list = append(list, int(binary.BigEndian.Uint32([]byte(key[at:at+4]))))
	}
	return list
}

// writeKey turns a list of small numbers into a string that can be the key of a map and sorts as the list does.
func writeKey(list []int) string {
	var b []byte
	for _, i := range list {
		b = binary.BigEndian.AppendUint32(b, uint32(i))
	}
	return string(b)
}

// compareFates orders by bytes kept, then by bytes moved, then by time.
func compareFates(a, b Fates) int {
	return cmp.Or(cmp.Compare(a.Kept, b.Kept), cmp.Compare(a.Moved, b.Moved), cmp.Compare(a.Seconds, b.Seconds))
}

// undominated leaves out ways that keep, move and take at least as much as another one.
func undominated(ways []Fates) (out []Fates) {
	slices.SortStableFunc(ways, compareFates)
	var stairs []Fates // by more moved and less time, of all ways so far, which keep no more
	for _, w := range ways {
		at, _ := slices.BinarySearchFunc(stairs, w.Moved+1, func(s Fates, moved int64) int {
			return cmp.Compare(s.Moved, moved)
		})
		if at > 0 && stairs[at-1].Seconds <= w.Seconds {
			continue
		}
		out = append(out, w)
		to := at
		for to < len(stairs) && stairs[to].Seconds >= w.Seconds {
			to++
		}
		stairs = slices.Replace(stairs, at, to, w)
	}
	return out
}

// thinned leaves the fastest of the ways that keep and move about as much, and those that are best at some
// price of memory: these are never lost, since what is best for all tensors at a price is so for each part
// of them. prices are those of copies, in seconds a byte; what moves nothing is looked at by itself.
func thinned(ways []Fates, grain int64, prices []float64) (out []Fates) {
	stays := make([]bool, len(ways))
	still := slices.DeleteFunc(indices(len(ways)), func(i int) bool { return ways[i].Moved > 0 })
	markHull(ways, still, 0, stays)
	for _, price := range prices {
		markHull(ways, indices(len(ways)), price, stays)
	}
	best := map[[2]int64]int{}
	for i := range ways {
		k := [2]int64{ways[i].Kept / grain, (ways[i].Moved + grain - 1) / grain}
		if b, ok := best[k]; !ok || ways[i].Seconds < ways[b].Seconds {
			best[k] = i
		}
	}
	for _, i := range best {
		stays[i] = true
	}
	for i, w := range ways {
		if stays[i] {
			out = append(out, w)
		}
	}
	return out
}

// indices are the numbers from 0 up to n, without n.
func indices(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// markHull marks the corners of the lower hull of what listed ways keep and take, where a byte moved costs price.
func markHull(ways []Fates, list []int, price float64, corner []bool) {
	cost := func(i int) float64 { return ways[i].Seconds + price*float64(ways[i].Moved) }
	slices.SortStableFunc(list, func(a, b int) int {
		return cmp.Or(cmp.Compare(ways[a].Kept, ways[b].Kept), cmp.Compare(cost(a), cost(b)))
	})
	var hull []int
	for _, c := range list {
		if n := len(hull); n > 0 && cost(c) >= cost(hull[n-1]) {
			continue
		}
		for n := len(hull); n > 1; n = len(hull) {
			a, b := hull[n-2], hull[n-1]
			near, far := float64(ways[b].Kept-ways[a].Kept), float64(ways[c].Kept-ways[a].Kept)
			if (cost(b)-cost(a))*far < (cost(c)-cost(a))*near {
				break
			}
			hull = hull[:n-1]
		}
		hull = append(hull, c)
	}
	for _, i := range hull {
		corner[i] = true
	}
}

// Copying is what moves tensors to the host and back beside a microbatch's own work.
type Copying struct {
	PerByte float64 // seconds a byte, one way
	Beside  float64 // seconds of the microbatch's forward and backward, which hide copies
}

// Extra is the time that a way adds to a microbatch: computing again, and what of the copies work does not hide.
func (c Copying) Extra(f *Fates) float64 {
	return max(f.Seconds, 2*c.PerByte*float64(f.Moved)-c.Beside)
}

// Best is the way that takes least time of those that keep no more than a budget; of equal ones that which
// moves least, then that which keeps least. It is nil if no choice is within the budget.
func Best(ways []Fates, budget int64, c Copying) (best *Fates) {
	for i := range ways {
		w := &ways[i]
		if w.Kept > budget {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(c.Extra(w), c.Extra(best)), cmp.Compare(w.Moved, best.Moved),
			cmp.Compare(w.Kept, best.Kept)) < 0 {
			best = w
		}
	}
	return best
}
