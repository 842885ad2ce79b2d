package core

import (
	"iter"
	"slices"
)

// Spread says who keeps the second copies of states in memory: by rank, its buddies. By is the ranks of each process,
// hosts the host of each, or nil where each counts as on one of its own. The copies are such that
//
//   - process 0, which leads, and any other may be lost together, and
//   - the host of process 0 and any other may,
//
// as far as anybody is left then. That is one copy for a rank on another host than the leader's, mostly, and two for one
// on the leader's, which are on two others.
func Spread(by [][]int, hosts []string) (out [][]int) {
	s := newSpread(by, hosts)
	for p, ranks := range by {
		losses := s.losses(p)
		for i := range ranks {
			var buddies []int
			for _, q := range choose(losses, s.order(p, i)) {
				buddies = append(buddies, by[q][i%len(by[q])])
			}
			out = append(out, buddies)
		}
	}
	return out
}

// spread is who lives where.
type spread struct {
	self []int   // by process, itself
	at   []int   // by process, its host; process 0 is on host 0
	slot []int   // by process, its place on the host
	on   [][]int // by host, its processes
}

func newSpread(by [][]int, hosts []string) *spread {
	s, known := &spread{}, map[string]int{}
	for p := range by {
		h, ok := len(s.on), false
		if hosts != nil && hosts[p] != "" {
			h, ok = known[hosts[p]]
		}
		if !ok {
			h = len(s.on)
			s.on = append(s.on, nil)
			if hosts != nil {
				known[hosts[p]] = h
			}
		}
		s.self, s.at, s.slot = append(s.self, p), append(s.at, h), append(s.slot, len(s.on[h]))
		s.on[h] = append(s.on[h], p)
	}
	return s
}

// loss is what ends at once: the processes of which of says a or b.
type loss struct {
	of   []int
	a, b int
}

func (l loss) takes(p int) bool { return l.of[p] == l.a || l.of[p] == l.b }

// losses are those that a copy of the state of process p has to outlive, the largest first. What takes all processes is
// none of them.
func (s *spread) losses(p int) (out []loss) {
	if s.at[p] == 0 {
		for h := range s.on {
			out = append(out, loss{s.at, 0, h})
		}
	} else {
		out = append(out, loss{s.at, 0, s.at[p]}, loss{s.at, s.at[p], s.at[p]})
	}
	if p == 0 {
		for q := range s.self {
			out = append(out, loss{s.self, 0, q})
		}
	} else {
		out = append(out, loss{s.self, 0, p}, loss{s.self, p, p})
	}
	return slices.DeleteFunc(out, func(l loss) bool {
		return !slices.ContainsFunc(s.self, func(q int) bool { return !l.takes(q) })
	})
}

// order is which processes are asked first to keep a copy of rank i of process p: those at its place on the hosts
// behind its own. The copies of the leader's host, which are twice as many, go to all others in turn.
func (s *spread) order(p, i int) iter.Seq[int] {
	h, slot, n := s.at[p], s.slot[p], len(s.on)
	return func(yield func(q int) bool) {
		for k := 1; k < n; k++ {
			next := s.on[(h+k)%n]
			if h == 0 {
				next = s.on[1+(slot+i+k-1)%(n-1)]
			}
			for j := range next {
				if !yield(next[(slot+j)%len(next)]) {
					return
				}
			}
		}
		own := s.on[h]
		for k := range len(own) - 1 { // not itself
			if p == 0 {
				k = (k + i) % (len(own) - 1)
			}
			if !yield(own[(slot+1+k)%len(own)]) {
				return
			}
		}
	}
}

// few is the most losses that one process may outlive all of: of those of the leader's host each process is in one.
const few = 4

// choose takes processes in order until one of them outlives each loss: one that outlives all that are left, or else the
// first of them.
func choose(left []loss, order iter.Seq[int]) (out []int) {
	left = slices.Clone(left)
	first := func(of []loss) int {
		for q := range order {
			if !slices.ContainsFunc(of, func(l loss) bool { return l.takes(q) }) {
				return q
			}
		}
		return -1
	}
	for len(left) > 0 {
		q := -1
		if len(left) <= few {
			q = first(left)
		}
		if q < 0 {
			q = first(left[:1])
		}
		out = append(out, q)
		left = slices.DeleteFunc(left, func(l loss) bool { return !l.takes(q) })
	}
	return out
}
