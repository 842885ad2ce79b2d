// Package collective writes collectives as lists of sends, so that a machine can carry them out one by one,
// and prices them in closed form. Both views are of the same algorithms.
package collective

import "math"

// Send is one message of a collective. Sends of one round start together, when the round before is over.
// In the words of the field: all-to-all.
type Send struct {
	Round, From, To int // members of the group, from 0
	Bytes           int64
}

// Kind is what a collective does.
type Kind uint8

// The collectives.
const (
	AllReduce     Kind = iota
	AllGather          // bytes is what every member has at the end
	ReduceScatter      // bytes is what every member has at the beginning
)

// rounds is how often n members pass a share on in a ring.
func (k Kind) rounds(n int) int {
	if k == AllReduce {
		return 2 * (n - 1)
	}
	return n - 1
}

// Ring lists the sends of a ring over n members: every round each member passes one n-th of the bytes to
// the next (arXiv:1802.05799).
func Ring(k Kind, n int, bytes int64) (out []Send) {
	for r := range k.rounds(n) {
		for m := range n {
			out = append(out, Send{r, m, (m + 1) % n, share(bytes, n)})
		}
	}
	return
}

// Exchange lists the sends of members that each send the others bytes, to each an equal part of its own: in
// round r to the member r + 1 places on.
func Exchange(n int, bytes int64) (out []Send) {
	for r := range n - 1 {
		for m := range n {
			out = append(out, Send{r, m, (m + r + 1) % n, share(bytes, n-1)})
		}
	}
	return
}

// Tree lists the sends of a reduction along a binary tree to member 0 and back, for short messages: log2 n
// rounds each way.
func Tree(n int, bytes int64) (out []Send) {
	var up []Send
	depth := 0
	for gap := 1; gap < n; gap *= 2 {
		for m := 0; m+gap < n; m += 2 * gap {
			up = append(up, Send{depth, m + gap, m, bytes})
		}
		depth++
	}
	out = append(out, up...)
	for i := len(up) - 1; i >= 0; i-- {
		out = append(out, Send{2*depth - 1 - up[i].Round, up[i].To, up[i].From, bytes})
	}
	return
}

// Hierarchical lists the sends of an all-reduce over hosts of local members each, members of a host being
// neighbours: a ring of reduce-scatters inside each host, a ring of all-reduces of every share between the
// hosts, and a ring of all-gathers inside.
func Hierarchical(n, local int, bytes int64) (out []Send) {
	hosts, round := n/local, 0
	for h := range hosts {
		for _, s := range Ring(ReduceScatter, local, bytes) {
			out = append(out, Send{s.Round, h*local + s.From, h*local + s.To, s.Bytes})
		}
	}
	round = local - 1
	for i := range local {
		for _, s := range Ring(AllReduce, hosts, share(bytes, local)) {
			out = append(out, Send{round + s.Round, s.From*local + i, s.To*local + i, s.Bytes})
		}
	}
	round += 2 * (hosts - 1)
	for h := range hosts {
		for _, s := range Ring(AllGather, local, bytes) {
			out = append(out, Send{round + s.Round, h*local + s.From, h*local + s.To, s.Bytes})
		}
	}
	return
}

func share(bytes int64, n int) int64 { return (bytes + int64(n) - 1) / int64(n) }

// Link is a connection: seconds before the first byte, and seconds a byte.
type Link struct{ Latency, PerByte float64 }

// Of is the time of one message.
func (l Link) Of(bytes int64) float64 { return l.Latency + l.PerByte*float64(bytes) }

// RingTime is the closed form of Ring over equal links.
func RingTime(k Kind, n int, bytes int64, l Link) float64 {
	return float64(k.rounds(n)) * l.Of(share(bytes, n))
}

// TreeTime is the closed form of Tree over equal links.
func TreeTime(n int, bytes int64, l Link) float64 {
	return 2 * math.Ceil(math.Log2(float64(n))) * l.Of(bytes)
}

// HierarchicalTime is the closed form of Hierarchical: inside hosts, and between them.
func HierarchicalTime(n, local int, bytes int64, inside, between Link) float64 {
	t := RingTime(AllReduce, local, bytes, inside)
	return t + RingTime(AllReduce, n/local, share(bytes, local), between)
}

// Play carries sends out one by one and returns when the last one ends. A member starts a round when its own
// sends and receives of earlier rounds have ended; link gives the connection of two members, whose ends
// carry one message at a time each way.
func Play(n int, sends []Send, link func(from, to int) Link) float64 {
	ready, out, in := make([]float64, n), make([]float64, n), make([]float64, n)
	next := make([]float64, n)
	end := 0.0
	for i := 0; i < len(sends); {
		copy(next, ready)
		round := sends[i].Round
		for ; i < len(sends) && sends[i].Round == round; i++ {
			s := sends[i]
			l := link(s.From, s.To)
			begin := max(ready[s.From], out[s.From], in[s.To])
			busy := begin + l.PerByte*float64(s.Bytes)
			out[s.From], in[s.To] = busy, busy
			there := busy + l.Latency
			next[s.From], next[s.To] = max(next[s.From], busy), max(next[s.To], there)
			end = max(end, there)
		}
		ready, next = next, ready
	}
	return end
}
