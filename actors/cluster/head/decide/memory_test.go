package decide

import (
	"maps"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/cluster/store"
)

// memory is what terms have written that lead one after the other.
type memory struct {
	values   map[string][]byte
	revision int64
}

// memoryTerm is one of them. What else a store's term does nobody asks for here.
type memoryTerm struct {
	store.Term
	m      *memory
	number int64
}

// lead begins a new term.
func (m *memory) lead() store.Term {
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	m.revision++
	return &memoryTerm{m: m, number: m.revision}
}

func (t *memoryTerm) Number() int64 { return t.number }

func (t *memoryTerm) Commit(ops []store.Op) (int64, error) {
	for _, op := range ops {
		if t.m.values[op.Key] = op.Value; op.Value == nil {
			delete(t.m.values, op.Key)
		}
	}
	t.m.revision++
	return t.m.revision, nil
}

func (t *memoryTerm) List(prefix string, see func(string, []byte) error) error {
	for _, k := range slices.Sorted(maps.Keys(t.m.values)) {
		if name, ok := strings.CutPrefix(k, prefix); ok {
			if err := see(name, t.m.values[k]); err != nil {
				return err
			}
		}
	}
	return nil
}
