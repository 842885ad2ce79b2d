package token

import "hash/fnv"

// joinDropout merges s.word as joinLong does, but leaves each merge out with a probability, until another one was
// carried out: BPE dropout (Provilkov et al., arXiv:1910.13267), as the library has it. What is left out is a function
// of the text alone, so that the data of a run can be repeated; the library draws anew each time.
func (m *bpe) joinDropout(s *scratch, out []int32) []int32 {
	links, heap := s.links[:0], s.heap[:0]
	for i, id := range s.word {
		links = append(links, link{id, int32(i) - 1, int32(i) + 1})
	}
	links[len(links)-1].next = -1
	for i := range links {
		heap = m.offer(heap, links, int32(i))
	}
	var skipped []candidate
	for len(heap) > 0 {
		var top candidate
		top, heap = popMin(heap)
		if s.draw() < m.dropout {
			skipped = append(skipped, top)
			continue
		}
		for _, c := range skipped {
			heap = push(heap, c)
		}
		skipped = skipped[:0]
		heap = m.merge(heap, links, top)
	}
	for _, l := range links {
		if l.id >= 0 {
			out = append(out, l.id)
		}
	}
	s.links, s.heap = links, heap
	return out
}

// seed begins the draws of a text.
func (s *scratch) seed(text string) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // it cannot fail
	s.draws = h.Sum64()
}

// draw returns a number in [0, 1): SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func (s *scratch) draw() float64 {
	s.draws += 0x9e3779b97f4a7c15
	x := s.draws
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}
