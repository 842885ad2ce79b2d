package grammar

import (
	"encoding/binary"
	"slices"
)

// The bounds of what a machine keeps: states, and bytes of sets of tokens. Where one is reached all is forgotten
// and made anew as it is met.
const (
	statesMost = 1 << 13
	maskBytes  = 64 << 20
)

// placesMost bounds the places where a text may be at once: a grammar that is more ambiguous ends.
const placesMost = 1 << 12

// workMost bounds the places that are followed for one set of tokens: behind it tokens are taken for not allowed, so
// that a grammar which is ambiguous beyond measure holds nobody up for long.
const workMost = 1 << 24

// stack is what calls will go on with.
type stack struct {
	to int32
	up *stack
	id uint64
}

type stackKey struct {
	to int32
	up uint64
}

// place is where a text may be: before an instruction that reads a byte.
type place struct {
	at    int32
	stack *stack
}

// State is all that a text may be, given its bytes so far.
type State struct {
	m      *Machine
	places []place
	ends   bool
	next   [256]*State
	known  [256]bool
	masks  [2][]uint64 // of a vocabulary's tokens, of the first one and of others
}

// Machine follows texts of a grammar. It is for one goroutine.
type Machine struct {
	g      *Grammar
	begin  *State
	states map[string]*State
	stacks map[stackKey]*stack
	ids    uint64 // of stacks
	masked int    // bytes of masks
	left   int    // places that may be followed
}

// NewMachine makes a machine.
func NewMachine(g *Grammar) *Machine {
	m := &Machine{g: g, left: workMost}
	m.forget()
	return m
}

// forget drops all states; those that somebody holds lead to new ones.
func (m *Machine) forget() {
	m.states, m.stacks, m.masked = map[string]*State{}, map[stackKey]*stack{}, 0
	m.begin = nil
}

// Start is the state of the text without bytes.
func (m *Machine) Start() *State {
	if m.begin == nil {
		m.begin = m.close([]place{{m.g.start, nil}})
	}
	return m.begin
}

// Ends reports whether the text may end.
func (s *State) Ends() bool { return s.ends }

// Complete reports whether the text can only end.
func (s *State) Complete() bool { return s.ends && len(s.places) == 0 }

// After is the state behind one more byte, nil if it may not follow.
func (s *State) After(c byte) *State {
	if s.known[c] {
		return s.next[c]
	}
	var to []place
	for _, p := range s.places {
		if i := s.m.g.code[p.at]; i.lo <= c && c <= i.hi {
			to = append(to, place{i.to, p.stack})
		}
	}
	if len(to) > 0 {
		if s.m.left < 0 {
			return nil
		}
		s.next[c] = s.m.close(to)
	}
	s.known[c] = true
	return s.next[c]
}

// push is a stack with one more place to go on at.
func (m *Machine) push(to int32, up *stack) *stack {
	if m.g.code[to].op == opEnd { // what calls last goes on where its caller does
		return up
	}
	key := stackKey{to, 0}
	if up != nil {
		key.up = up.id
	}
	s := m.stacks[key]
	if s == nil {
		m.ids++
		s = &stack{to, up, m.ids}
		m.stacks[key] = s
	}
	return s
}

// close follows all that reads no byte, and gives the state of the places that are met, nil if there are none.
func (m *Machine) close(todo []place) *State {
	if len(m.states) > statesMost || len(m.stacks) > 8*statesMost {
		m.forget()
	}
	seen := map[place]bool{}
	s := &State{m: m}
	for len(todo) > 0 {
		p := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[p] {
			continue
		}
		seen[p] = true
		if len(seen) > placesMost {
			return nil
		}
		switch i := m.g.code[p.at]; i.op {
		case opByte:
			s.places = append(s.places, p)
		case opSplit:
			todo = append(todo, place{i.to, p.stack}, place{i.also, p.stack})
		case opCall:
			todo = append(todo, place{i.to, m.push(i.also, p.stack)})
		case opEnd:
			if p.stack == nil {
				s.ends = true
			} else {
				todo = append(todo, place{p.stack.to, p.stack.up})
			}
		}
	}
	m.left -= len(seen)
	if len(s.places) == 0 && !s.ends {
		return nil
	}
	key := s.key()
	if known := m.states[key]; known != nil {
		return known
	}
	m.states[key] = s
	return s
}

// key tells states apart; it puts places in order.
func (s *State) key() string {
	slices.SortFunc(s.places, func(a, b place) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		switch x, y := a.stack.number(), b.stack.number(); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
	b := []byte{0}
	if s.ends {
		b[0] = 1
	}
	for _, p := range s.places {
		b = binary.AppendUvarint(b, uint64(p.at))
		b = binary.AppendUvarint(b, p.stack.number())
	}
	return string(b)
}

func (s *stack) number() uint64 {
	if s == nil {
		return 0
	}
	return s.id
}
