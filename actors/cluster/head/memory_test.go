package head

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/cluster/store"
	"github.com/lfactor/lfactor/actors/cluster/store/storetest"
)

// memory is a state without disks, which several members share as if each had a copy. It outlives them, so
// that a head of a test can end and come back. Its zero value is not usable: see newMemory.
type memory struct {
	mu       sync.Mutex
	values   map[string][]byte
	revision int64
	term     int64
	leader   string
}

// newMemory is an empty state.
func newMemory() *memory { return &memory{values: map[string][]byte{}} }

// Open is a member by this name, which leads until another does: see Elect.
func (m *memory) Open(name string) store.Store {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leader == "" {
		m.leader = name
	}
	return &member{m: m, name: name, failed: make(chan struct{})}
}

// Revision counts what was written.
func (m *memory) Revision() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.revision
}

// Elect lets the member of this name lead the others from now on.
func (m *memory) Elect(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leader = name
}

// member is one of those that share a memory.
type member struct {
	m      *memory
	name   string
	failed chan struct{}
}

// Lead begins a new term, which ends all earlier ones, as a store shared by several heads does.
func (s *member) Lead(string) (store.Term, error) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	s.m.revision++
	s.m.term = s.m.revision
	return &memoryTerm{m: s.m, number: s.m.term, over: make(chan struct{})}, nil
}

func (s *member) Leads() bool { return s.Leader() == s.name }

// Leader is the name of the head that leads, or nothing.
func (s *member) Leader() string {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.leader
}

func (s *member) Failed() <-chan struct{} { return s.failed }

// Close leaves; a leader's seat becomes free.
func (s *member) Close() {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.leader == s.name {
		s.m.leader = ""
	}
}

func (s *member) CloseAll() { s.Close() }

// memoryTerm is a term of a memory.
type memoryTerm struct {
	m      *memory
	number int64
	over   chan struct{}
	once   sync.Once
	ended  bool // under the memory's lock
}

func (t *memoryTerm) Number() int64 { return t.number }

func (t *memoryTerm) Over() <-chan struct{} { return t.over }

// End ends the term for its own holder, after which it writes nothing.
func (t *memoryTerm) End() {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	t.ended = true
}

// Commit writes all changes or none, and returns the revision. A later term makes it fail with
// ErrOver, which keeps a head that was replaced from writing.
func (t *memoryTerm) Commit(ops []store.Op) (int64, error) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	if t.ended {
		return 0, context.Canceled
	}
	if t.m.term != t.number {
		t.once.Do(func() { close(t.over) })
		return 0, store.ErrOver
	}
	seen := map[string]bool{}
	for _, op := range ops {
		if seen[op.Key] {
			return 0, fmt.Errorf("writing %d changes: the key %s is among them twice", len(ops), op.Key)
		}
		seen[op.Key] = true
	}
	for _, op := range ops {
		if op.Value == nil {
			delete(t.m.values, op.Key)
		} else {
			t.m.values[op.Key] = slices.Clone(op.Value)
		}
	}
	t.m.revision++
	return t.m.revision, nil
}

// List shows the values below prefix in the order of their keys. They are copied first, so that see
// may use the store.
func (t *memoryTerm) List(prefix string, see func(string, []byte) error) error {
	t.m.mu.Lock()
	values := maps.Clone(t.m.values)
	t.m.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if name, ok := strings.CutPrefix(k, prefix); ok {
			if err := see(name, values[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Backup writes all values as JSON.
func (t *memoryTerm) Backup(w io.Writer) error {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return json.NewEncoder(w).Encode(t.m.values)
}

// errMemory is what has no meaning without members that can be lost.
var errMemory = errors.New("a store in memory has no members to replace")

func (t *memoryTerm) Replace(store.Peer) error { return errMemory }

func (t *memoryTerm) Promote(store.Peer) error { return errMemory }

// TestMemory: the state in memory keeps the contract of one on disk, and outlives its members.
func TestMemory(t *testing.T) {
	m := newMemory()
	storetest.Run(t, func(*testing.T) store.Store { return m.Open("head") })
}

// TestElect: one of several members leads, and says who does.
func TestElect(t *testing.T) {
	m := newMemory()
	a, b := m.Open("a"), m.Open("b")
	require.True(t, a.Leads())
	require.Equal(t, "a", b.Leader())
	m.Elect("b")
	require.False(t, a.Leads())
	require.True(t, b.Leads())
	b.Close()
	require.Empty(t, a.Leader())
}
