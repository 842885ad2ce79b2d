package pack

import (
	"math"
	"slices"
)

const (
	partnersMax = 6  // ranks looked at to take work from one that has too much
	evenRounds  = 16 // exchanges a rank, on average
	finerMax    = 48 // samples of a rank that pairs of exchanges are made of
)

// exchange is a sample of a rank with much work for a cheaper one of another, or for nothing.
type exchange struct {
	give, take held // take.id -1: nothing
	work       float64
}

// trade is one exchange between two ranks, or two at once.
type trade struct {
	high, low int // ranks
	parts     [2]exchange
	n         int
	work      float64 // that goes from high to low
	worst     float64 // how far above the mean the two are then
}

// even brings the rank with most work to the mean, again and again.
func (b *balancer) even() {
	ranks := len(b.sum)
	order := make([]int, ranks) // by work, least first
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, b.bySum)
	for range evenRounds * ranks {
		high := order[ranks-1]
		over := b.sum[high] - b.mean
		if over <= b.mean*BalanceTolerance {
			return
		}
		best := b.best(high, order)
		if best.worst >= over {
			return
		}
		b.apply(&best)
		b.reorder(order, high)
		b.reorder(order, best.low)
	}
}

func (b *balancer) bySum(i, j int) int {
	return compareHeld(held{b.sum[i], int32(i)}, held{b.sum[j], int32(j)})
}

// best looks for the trade with one of the ranks of least work, or of a work as much below the mean as this
// one's is above, that leaves the two closest to the mean.
func (b *balancer) best(high int, order []int) trade {
	over := b.sum[high] - b.mean
	best := trade{worst: math.Inf(1)}
	near, _ := slices.BinarySearchFunc(order, b.mean-over, func(r int, x float64) int {
		return compareHeld(held{cost: b.sum[r]}, held{cost: x})
	})
	for k := range partnersMax {
		at := k / 2 // the ranks with least work, and those that just take what is over
		if k%2 == 0 {
			at = near - 1 - k/2
		}
		if at < 0 || at >= len(order)-1 || b.sum[order[at]] >= b.sum[high] {
			continue
		}
		t := b.between(high, order[at])
		if t.worst > b.mean*BalanceTolerance/2 {
			if f := b.finer(high, order[at]); f.worst < t.worst {
				t = f
			}
		}
		if t.worst < best.worst {
			best = t
		}
		if best.worst <= b.mean*BalanceTolerance/2 {
			break
		}
	}
	return best
}

// wish is how much work two ranks would best exchange: what is over if the other can take it, or else half
// of their difference.
func (b *balancer) wish(high, low int) (over, room, want float64) {
	over, room = b.sum[high]-b.mean, b.mean-b.sum[low]
	if room < over {
		return over, room, (over + room) / 2
	}
	return over, room, over
}

// between finds the best single exchange of two ranks.
func (b *balancer) between(high, low int) trade {
	over, room, want := b.wish(high, low)
	best := trade{high: high, low: low, n: 1, worst: math.Inf(1)}
	hi, lo := b.held[high], b.held[low]
	off := math.Inf(1)
	consider := func(x, y held) {
		if d := math.Abs(x.cost - y.cost - want); d < off {
			off, best.work = d, x.cost-y.cost
			best.parts[0] = exchange{x, y, best.work}
		}
	}
	if !b.sameCount {
		at, _ := slices.BinarySearchFunc(hi, held{cost: want, id: -1}, compareHeld)
		for _, x := range hi[max(0, at-1):min(len(hi), at+1)] {
			consider(x, held{id: -1})
		}
	}
	j := 0
	for _, x := range hi { // both ascend, so that the best partner of the next is not before that of this
		for j < len(lo) && x.cost-lo[j].cost > want {
			j++
		}
		if j < len(lo) {
			consider(x, lo[j])
		}
		if j > 0 {
			consider(x, lo[j-1])
		}
	}
	if off < math.Inf(1) && best.work > 0 {
		best.worst = max(over-best.work, best.work-room)
	}
	return best
}

// finer finds the best pair of exchanges of two ranks, one that gives more than it takes and one that gives
// less. Costs that are sums of tokens and their squares differ in large steps from one sample to the next;
// differences of such differences do not.
func (b *balancer) finer(high, low int) trade {
	over, room, want := b.wish(high, low)
	best := trade{high: high, low: low, n: 2, worst: math.Inf(1)}
	b.neighbours(b.held[high], b.held[low])
	off := math.Inf(1)
	for i, j := 0, 0; i < len(b.up) && j < len(b.down); {
		u, d := &b.up[i], &b.down[j]
		work := u.work + d.work
		if e := math.Abs(work - want); e < off && u.give.id != d.give.id && u.take.id != d.take.id {
			off, best.work, best.parts = e, work, [2]exchange{*u, *d}
		}
		if work < want {
			i++ // gives more
		} else {
			j++
		}
	}
	if off < math.Inf(1) && best.work > 0 {
		best.worst = max(over-best.work, best.work-room)
	}
	return best
}

// neighbours lists samples of one rank, spread over their costs, with the next cheaper and the next dearer
// one of the other: up ascends, and down descends.
func (b *balancer) neighbours(hi, lo []held) {
	b.up, b.down = b.up[:0], b.down[:0]
	j := 0
	for i := 0; i < len(hi); i += 1 + len(hi)/finerMax {
		x := hi[i]
		for j < len(lo) && lo[j].cost < x.cost {
			j++
		}
		if j > 0 {
			b.up = append(b.up, exchange{x, lo[j-1], x.cost - lo[j-1].cost})
		}
		if j < len(lo) {
			b.down = append(b.down, exchange{x, lo[j], x.cost - lo[j].cost})
		}
	}
	slices.SortFunc(b.up, func(x, y exchange) int {
		return compareHeld(held{x.work, x.give.id}, held{y.work, y.give.id})
	})
	slices.SortFunc(b.down, func(x, y exchange) int {
		return compareHeld(held{y.work, y.give.id}, held{x.work, x.give.id})
	})
}

// apply makes a trade.
func (b *balancer) apply(t *trade) {
	for _, e := range t.parts[:t.n] {
		b.move(t.high, t.low, e.give)
		if e.take.id >= 0 {
			b.move(t.low, t.high, e.take)
		}
	}
	b.sum[t.high] -= t.work
	b.sum[t.low] += t.work
}

func (b *balancer) move(from, to int, x held) {
	at, _ := slices.BinarySearchFunc(b.held[from], x, compareHeld)
	b.held[from] = slices.Delete(b.held[from], at, at+1)
	at, _ = slices.BinarySearchFunc(b.held[to], x, compareHeld)
	b.held[to] = slices.Insert(b.held[to], at, x)
	b.rank[x.id] = to
}

// reorder puts a rank whose work has changed back in its place.
func (b *balancer) reorder(order []int, rank int) {
	at := slices.Index(order, rank)
	for at > 0 && b.bySum(order[at-1], rank) > 0 {
		order[at], at = order[at-1], at-1
	}
	for at+1 < len(order) && b.bySum(order[at+1], rank) < 0 {
		order[at], at = order[at+1], at+1
	}
	order[at] = rank
}
