package tensor

import "slices"

// Holes is what is free of a range of addresses: parts are taken from the smallest hole that has them, and what is
// given back joins its neighbours. The zero value has nothing; the caller sees to it that only one goroutine uses it.
type Holes struct {
	free []hole // in order, never touching
	used int    // bytes
}

type hole struct{ from, to int }

// NewHoles is a range of n bytes, all of them free.
func NewHoles(n int) *Holes { return &Holes{free: []hole{{0, n}}} }

// Used is the bytes that are taken.
func (s *Holes) Used() int { return s.used }

// Best is the place of the smallest hole of at least n bytes, and its size; -1 if there is none.
func (s *Holes) Best(n int) (at, size int) {
	at = -1
	for i, h := range s.free {
		if have := h.to - h.from; have >= n && (at < 0 || have < size) {
			at, size = i, have
		}
	}
	return at, size
}

// Take takes n bytes of the hole that Best found, and returns where they begin.
func (s *Holes) Take(at, n int) (from int) {
	h := s.free[at]
	from = h.from
	if h.from += n; h.from == h.to {
		s.free = slices.Delete(s.free, at, at+1)
	} else {
		s.free[at] = h
	}
	s.used += n
	return from
}

// Give takes n bytes back.
func (s *Holes) Give(from, n int) {
	s.used -= n
	i, _ := slices.BinarySearchFunc(s.free, from, func(h hole, from int) int { return h.from - from })
	h := hole{from, from + n}
	if i < len(s.free) && s.free[i].from == h.to {
		h.to = s.free[i].to
		s.free = slices.Delete(s.free, i, i+1)
	}
	if i > 0 && s.free[i-1].to == h.from {
		s.free[i-1].to = h.to
		return
	}
	s.free = slices.Insert(s.free, i, h)
}
