package pack

import (
	"cmp"
	"container/heap"
	"slices"
)

// Load is a sample to share out among ranks.
type Load struct {
	Cost  float64 // work, in any unit
	Bytes int64   // what moves when another rank takes it
	Home  int     // the rank that has it
}

// Balance is who does what.
type Balance struct {
	Rank      []int   // of each sample
	Imbalance float64 // largest work of a rank over the mean, less 1
	Moved     int64   // bytes of the samples that leave their home
}

// BalanceTolerance is the imbalance at which Assign stops: less is not felt.
const BalanceTolerance = 1e-6

// Assign shares samples out so that all ranks have the same work, moving as few bytes as it can:
// ranks with too much give away what is over, the samples with most work for their bytes first, to those with least;
// then samples of pairs of ranks are exchanged to even out what is left, as finely as differencing (Karmarkar and Karp)
// would. With sameCount every rank keeps its number of samples. Equal arguments give equal results.
func Assign(loads []Load, ranks int, sameCount bool) Balance {
	b := &balancer{loads: loads, sum: make([]float64, ranks), held: make([][]held, ranks),
		rank: make([]int, len(loads)), sameCount: sameCount}
	total := 0.0
	for i, l := range loads {
		b.rank[i] = l.Home
		b.held[l.Home] = append(b.held[l.Home], held{l.Cost, int32(i)})
		b.sum[l.Home] += l.Cost
		total += l.Cost
	}
	b.mean = total / float64(ranks)
	if !sameCount {
		b.give()
	}
	for _, h := range b.held {
		slices.SortFunc(h, compareHeld)
	}
	b.even()
	out := Balance{Rank: b.rank, Imbalance: Imbalance(b.sum)}
	for i, l := range loads {
		if b.rank[i] != l.Home {
			out.Moved += l.Bytes
		}
	}
	return out
}

// Imbalance is the largest of some sums over their mean, less 1.
func Imbalance(sums []float64) float64 {
	most, total := 0.0, 0.0
	for _, s := range sums {
		most, total = max(most, s), total+s
	}
	if total == 0 {
		return 0
	}
	return most*float64(len(sums))/total - 1
}

// held is a sample that a rank has.
type held struct {
	cost float64
	id   int32
}

// compareHeld orders by cost and then by number, so that equal costs have one order.
func compareHeld(x, y held) int {
	switch {
	case x.cost < y.cost:
		return -1
	case x.cost > y.cost:
		return 1
	}
	return int(x.id - y.id)
}

// balancer is an assignment being improved.
type balancer struct {
	loads     []Load
	rank      []int
	sum       []float64 // work of each rank
	held      [][]held  // its samples; cheapest first once sorted
	mean      float64
	sameCount bool
	up, down  []exchange // room for finer
}

// give takes from each rank what is over the mean and hands it to the ranks with least, the largest first.
func (b *balancer) give() {
	var pool []held
	for r, h := range b.held {
		if b.sum[r] <= b.mean {
			continue
		}
		slices.SortFunc(h, func(x, y held) int { return cmp.Or(b.worth(y, x), cmp.Compare(x.id, y.id)) })
		kept := h[:0]
		for _, x := range h {
			if b.sum[r]-x.cost >= b.mean {
				b.sum[r] -= x.cost
				pool = append(pool, x)
				continue
			}
			kept = append(kept, x)
		}
		b.held[r] = kept
	}
	slices.SortFunc(pool, func(x, y held) int { return compareHeld(y, x) })
	h := &leastFirst{sum: b.sum}
	for r := range b.sum {
		h.ranks = append(h.ranks, r)
	}
	heap.Init(h)
	for _, x := range pool {
		r := h.ranks[0]
		b.rank[x.id] = r
		b.held[r] = append(b.held[r], x)
		b.sum[r] += x.cost
		heap.Fix(h, 0)
	}
}

// worth compares samples by work a byte.
func (b *balancer) worth(x, y held) int {
	return cmp.Compare(x.cost*float64(max(b.loads[y.id].Bytes, 1)), y.cost*float64(max(b.loads[x.id].Bytes, 1)))
}

// leastFirst is a heap of ranks by their work.
type leastFirst struct {
	sum   []float64
	ranks []int
}

func (h *leastFirst) Len() int { return len(h.ranks) }
func (h *leastFirst) Less(i, j int) bool {
	a, b := h.ranks[i], h.ranks[j]
	return h.sum[a] < h.sum[b] || h.sum[a] == h.sum[b] && a < b
}
func (h *leastFirst) Swap(i, j int) { h.ranks[i], h.ranks[j] = h.ranks[j], h.ranks[i] }
func (h *leastFirst) Push(x any)    { h.ranks = append(h.ranks, x.(int)) }
func (h *leastFirst) Pop() any {
	x := h.ranks[len(h.ranks)-1]
	h.ranks = h.ranks[:len(h.ranks)-1]
	return x
}
