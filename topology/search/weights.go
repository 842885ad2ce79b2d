package search

import (
	"math"

	"github.com/lfactor/lfactor/topology/collective"
)

// Weights are what a rank trains: elements, those among them that are experts', and tensors.
type Weights struct{ Params, Experts, Tensors int64 }

// copies is how many ranks share out the state of some of a rank's elements, how far those are apart, and how many such
// groups are replicas of each other.
type copies struct {
	params    int64
	n, stride int
	again     int
}

// parts are a rank's elements by what ranks hold copies of them: replicas, and of experts what those leave.
func (c *Candidate) parts(w Weights) []copies {
	all := []copies{{w.Params - w.Experts, c.sharers(), c.TP, c.Copies() / c.sharers()}}
	if each := c.EP * c.ETP; each > 1 {
		return append(all, copies{w.Experts, c.Copies() * c.TP / each, each, 1})
	}
	all[0].params = w.Params
	return all
}

// sharers is how many ranks share state out among them.
func (c *Candidate) sharers() int {
	if c.Groups > 0 {
		return c.Groups
	}
	return c.Copies()
}

// grouped lists over how many ranks a plan's state is shared out: 0 for all replicas, and those of a host where there
// are several hosts, of models without experts.
func (s *Space) grouped(c *Candidate) []int {
	n := s.Machine.Devices / c.TP
	if c.Zero < 1 || c.CP > 1 || s.Shares != nil || s.Tower != nil || n < 2 || c.DP <= n || c.DP%n != 0 {
		return []int{0}
	}
	return []int{0, n}
}

// Base is what a rank holds all the time: weights, gradients, and the optimizer's state.
func (s *Space) Base(c *Candidate, w Weights) (bytes int64) {
	for _, p := range c.parts(w) {
		weights, grads, state, n := s.Param*p.params, 4*p.params, s.State*p.params, int64(p.n)
		if c.Zero >= 1 {
			state /= n
		}
		if c.Zero >= 2 {
			grads /= n
		}
		if c.Zero >= 3 {
			weights /= n
		}
		bytes += weights + grads + state
	}
	return bytes
}

// extra is what the optimizer step needs beyond that: the reduced gradients of a rank's share.
func (s *Space) extra(c *Candidate, w Weights) (bytes int64) {
	for _, p := range c.parts(w) {
		switch {
		case p.n == 1 || c.Zero >= 2:
		case c.Zero == 1:
			bytes += 4 * p.params / int64(p.n)
		default:
			bytes += 4 * p.params
		}
	}
	return bytes
}

// hidden is how much of the seconds in which ranks exchange gradients passes while the rank's last backward,
// which takes back seconds, makes the others. Whole buckets are sent as they are final, evenly over the
// backward, one behind the other; the last of them has nothing to hide behind.
func (s *Space) hidden(elements int64, exchange, back float64) float64 {
	bytes := 4 * elements
	if s.Bucket == 0 || bytes < s.Bucket {
		return 0
	}
	one := float64(s.Bucket) / float64(bytes) // a bucket's share of the gradients
	early := one * float64(bytes/s.Bucket)
	return max(0, min(exchange*(early-one), back*(early-one)))
}

// Update is the time of the optimizer step: gradients over those that hold copies, as far as they are not sent during
// the last backward, which takes back seconds, norms of all ranks, and the update of a rank's share.
func (s *Space) Update(c *Candidate, w Weights, back float64) float64 {
	own, t := int64(0), 0.0
	price := s.Machine.Collective
	for _, p := range c.parts(w) {
		n, again, mine := int64(p.n), int64(p.again), p.params
		if n*again == 1 {
			own += mine
			continue
		}
		d := s.Group(p.n, p.stride)
		if c.Zero > 0 {
			mine /= n
		}
		switch each := s.Group(p.again, p.stride*p.n); c.Zero {
		case 0:
			t += s.summed(d, p.params, back)
		case 1:
			sum := price(collective.ReduceScatter, s.Group(p.n*p.again, p.stride), 4*p.params)
			t += sum - s.hidden(p.params, sum, back) + price(collective.AllGather, d, s.Param*p.params)
			if again > 1 {
				t += price(collective.AllGather, each, 4*mine) + s.Machine.Segment(0, 8*mine, 0)
			}
			t += s.Machine.Segment(0, 4*mine/again*(n*again+1), 0) // the sum of what has come
		default:
			if again > 1 {
				t += s.summed(each, mine, back)
			}
			if c.Zero == 2 {
				t += price(collective.AllGather, d, s.Param*p.params)
			}
		}
		own += mine
	}
	t += 2 * math.Ceil(math.Log2(float64(s.Devices))) * s.Machine.Link(0, s.Devices-1).Latency
	update := s.Machine.Segment(0, s.Traffic*own, int(w.Tensors))
	if s.Through > 0 {
		update = max(update, float64(s.Through*own)/s.Machine.Copy)
	}
	return t + update
}

// summed is the time in which ranks sum gradients that all of them need, of so many elements: among more than two, each
// sums a part of the rows, and puts all sums together.
func (s *Space) summed(ranks []int, elements int64, back float64) float64 {
	sum, n := s.Machine.Collective(collective.AllReduce, ranks, 4*elements), int64(len(ranks))
	if n <= 2 {
		return sum - s.hidden(elements, sum, back) + s.Machine.Segment(0, 4*elements*(n+1), 0)
	}
	return sum - s.hidden(elements, sum/2, back) + s.Machine.Segment(0, 4*elements/n*(n+1)+8*elements, 0)
}
