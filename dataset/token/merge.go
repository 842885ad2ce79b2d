package token

// scanMax is the length up to which looking for the best pair in a row of ranks beats a heap.
const scanMax = 48

// noRank stands where two neighbours have no merge.
const noRank = int32(1<<31 - 1)

// joinShort merges s.word and appends the result to out. It looks through all ranks for each merge.
func (m *bpe) joinShort(s *scratch, out []int32) []int32 {
	w := s.word
	var pairs [scanMax]merged
	for i := range w {
		pairs[i] = m.pair(w, i)
	}
	for n := len(w); n > 1; n-- {
		best := 0
		for i := 1; i < n-1; i++ {
			if pairs[i].rank < pairs[best].rank {
				best = i
			}
		}
		if pairs[best].rank == noRank {
			break
		}
		w[best] = pairs[best].id
		w = append(w[:best+1], w[best+2:]...)
		copy(pairs[best+1:n-1], pairs[best+2:n])
		pairs[best] = m.pair(w, best)
		if best > 0 {
			pairs[best-1] = m.pair(w, best-1)
		}
	}
	return append(out, w...)
}

// pair returns the merge of w[i] and w[i+1].
func (m *bpe) pair(w []int32, i int) merged {
	if i+1 < len(w) {
		if p, ok := m.merges[pairKey(w[i], w[i+1])]; ok {
			return p
		}
	}
	return merged{rank: noRank}
}

// link is one symbol of a long word, in a doubly linked list; id -1 once it is merged away.
type link struct{ id, prev, next int32 }

// candidate is a possible merge at position at; it is stale when the symbols there no longer form id.
type candidate struct{ rank, at, id int32 }

func (c candidate) before(d candidate) bool {
	return c.rank < d.rank || c.rank == d.rank && c.at < d.at
}

// joinLong merges s.word and appends the result to out, in O(n log n).
func (m *bpe) joinLong(s *scratch, out []int32) []int32 {
	links, heap := s.links[:0], s.heap[:0]
	for i, id := range s.word {
		links = append(links, link{id, int32(i) - 1, int32(i) + 1})
	}
	links[len(links)-1].next = -1
	for i := range links {
		heap = m.offer(heap, links, int32(i))
	}
	for len(heap) > 0 {
		var top candidate
		top, heap = popMin(heap)
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

// merge carries out a merge, unless it is stale.
func (m *bpe) merge(heap []candidate, links []link, top candidate) []candidate {
	l := &links[top.at]
	if l.id < 0 || l.next < 0 {
		return heap
	}
	right := &links[l.next]
	if p, ok := m.merges[pairKey(l.id, right.id)]; !ok || p.id != top.id {
		return heap
	}
	l.id, right.id = top.id, -1
	if l.next = right.next; l.next >= 0 {
		links[l.next].prev = top.at
	}
	heap = m.offer(heap, links, l.prev)
	return m.offer(heap, links, top.at)
}

// offer adds the merge of the symbol at i and its successor, if there is one.
func (m *bpe) offer(heap []candidate, links []link, i int32) []candidate {
	if i < 0 || links[i].next < 0 {
		return heap
	}
	p, ok := m.merges[pairKey(links[i].id, links[links[i].next].id)]
	if !ok {
		return heap
	}
	return push(heap, candidate{p.rank, i, p.id})
}

// push adds a candidate to the heap.
func push(h []candidate, c candidate) []candidate {
	h = append(h, c)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
	return h
}

// popMin takes the candidate that comes first off the heap, which must not be empty.
func popMin(h []candidate) (candidate, []candidate) {
	top := h[0]
	last := len(h) - 1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(h) {
			return top, h
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return top, h
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

// Bounds of what one goroutine keeps between calls.
const (
	cachePiecesMax = 1 << 16 // pieces remembered; the memory is at most about 20 MiB
	cachePieceMax  = 64      // bytes of the longest piece remembered
	scratchIDsMax  = 1 << 20 // ids of a buffer that is kept
)

// scratch is the working memory of one Encode call, pooled, with the ids of pieces seen before.
type scratch struct {
	out, word []int32
	links     []link
	heap      []candidate
	cache     map[string][]int32
	arena     []int32
	draws     uint64 // state of the draws of dropout
}

func newScratch() *scratch { return &scratch{cache: map[string][]int32{}} }

// cached gives the tokens of a short piece that was encoded before.
func (s *scratch) cached(piece string) ([]int32, bool) {
	if len(piece) > cachePieceMax {
		return nil, false
	}
	ids, ok := s.cache[piece]
	return ids, ok
}

// keep remembers the ids of a piece. A full cache starts again empty, so it follows the text.
func (s *scratch) keep(piece string, ids []int32) {
	if len(piece) > cachePieceMax {
		return
	}
	if len(s.cache) >= cachePiecesMax {
		clear(s.cache)
		s.arena = nil
	}
	if len(s.arena)+len(ids) > cap(s.arena) {
		s.arena = make([]int32, 0, 1<<14)
	}
	at := len(s.arena)
	s.arena = append(s.arena, ids...)
	s.cache[string([]byte(piece))] = s.arena[at:len(s.arena):len(s.arena)]
}

// trim gives back buffers that one huge text has grown.
func (s *scratch) trim() {
	if cap(s.out) > scratchIDsMax {
		s.out = nil
	}
	if cap(s.links) > scratchIDsMax {
		s.links, s.heap, s.word = nil, nil, nil
	}
}
