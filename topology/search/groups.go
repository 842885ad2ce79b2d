package search

import "sync"

// groupKey describes a group by its size and the distance of its members, on which alone its cost depends.
type groupKey struct{ n, stride int }

// groups are lists of devices that were asked for; blocks are priced by several goroutines at a time.
type groups struct {
	mu    sync.Mutex
	lists map[groupKey][]int
}

func newGroups() *groups { return &groups{lists: map[groupKey][]int{}} }

// Group lists n devices at a stride; the caller does not change it.
func (s *Space) Group(n, stride int) []int {
	s.groups.mu.Lock()
	defer s.groups.mu.Unlock()
	key := groupKey{n, stride}
	if d := s.groups.lists[key]; d != nil {
		return d
	}
	d := make([]int, n)
	for i := range d {
		d[i] = i * stride
	}
	s.groups.lists[key] = d
	return d
}
