package grammar

import (
	"bytes"
	"slices"
)

// Vocabulary is the bytes that tokens add to a text, in order, so that what many begin with is followed once.
// It is immutable.
type Vocabulary struct {
	size  int
	lists [2]*spelled // of the first token of a text, and of others
}

// spelled are tokens in the order of their bytes.
type spelled struct {
	tokens []spelling
	common []int // bytes that a token has in common with the one before
	most   int   // bytes of a token
	of     [][]byte
}

type spelling struct {
	id int32
	b  []byte
}

// NewVocabulary takes the bytes of each token, nil for one that no text has, as the first of a text and behind others.
func NewVocabulary(first, other [][]byte) *Vocabulary {
	v := &Vocabulary{size: len(other)}
	v.lists[1] = spell(other)
	v.lists[0] = v.lists[1]
	if !slices.EqualFunc(first, other, bytes.Equal) {
		v.lists[0] = spell(first)
	}
	return v
}

func spell(of [][]byte) *spelled {
	s := &spelled{of: of}
	for id, b := range of {
		if len(b) > 0 {
			s.tokens = append(s.tokens, spelling{int32(id), b})
			s.most = max(s.most, len(b))
		}
	}
	slices.SortFunc(s.tokens, func(a, b spelling) int {
		if c := bytes.Compare(a.b, b.b); c != 0 {
			return c
		}
		return int(a.id - b.id)
	})
	s.common = make([]int, len(s.tokens))
	for i := 1; i < len(s.tokens); i++ {
		a, b := s.tokens[i-1].b, s.tokens[i].b
		for s.common[i] < min(len(a), len(b)) && a[s.common[i]] == b[s.common[i]] {
			s.common[i]++
		}
	}
	return s
}

// Size is the number of tokens.
func (v *Vocabulary) Size() int { return v.size }

// place of a list: 0 for the first token of a text, 1 for others.
func placeOf(first bool) int {
	if first {
		return 0
	}
	return 1
}

// Allowed has a bit for each token: whether it may follow. It is not to be changed.
func (v *Vocabulary) Allowed(s *State, first bool) []uint64 {
	k := placeOf(first)
	if s.masks[k] != nil {
		return s.masks[k]
	}
	s.m.left = workMost
	mask := make([]uint64, (v.size+63)/64)
	l := v.lists[k]
	path := make([]*State, l.most+1)
	path[0] = s
	dead := l.most + 1 // bytes of the present token that may not follow
	for i, t := range l.tokens {
		if l.common[i] >= dead {
			continue
		}
		dead = l.most + 1
		for j := l.common[i]; j < len(t.b); j++ {
			if path[j+1] = path[j].After(t.b[j]); path[j+1] == nil {
				dead = j + 1
				break
			}
		}
		if dead > l.most {
			mask[t.id/64] |= 1 << (t.id % 64)
		}
	}
	s.masks[k] = mask
	if s.m.masked += 8 * len(mask); s.m.masked > maskBytes {
		s.m.forget()
	}
	return mask
}

// After is the state behind a token, nil if it may not follow.
func (v *Vocabulary) After(s *State, id int32, first bool) *State {
	of := v.lists[placeOf(first)].of
	if id < 0 || int(id) >= len(of) || len(of[id]) == 0 {
		return nil
	}
	s.m.left = workMost
	for _, c := range of[id] {
		if s = s.After(c); s == nil {
			return nil
		}
	}
	return s
}
