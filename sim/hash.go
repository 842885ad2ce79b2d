package sim

import (
	"math/bits"

	"github.com/lfactor/lfactor/actors"
)

// count adds an event to its actor's trace hash: the event's own hash, of two halves that do not wait for
// each other, is chained to that of all that the actor was told before.
func (s *Sim) count(at int64, to actors.Ref, m *actors.Message) {
	const odd1, odd2, odd3, odd4 = 0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb, 0xd6e8feb86659fd93
	a := uint64(m.Action.Kind) | uint64(uint16(m.Action.Stage))<<8 | uint64(uint16(m.Action.Chunk))<<24 |
		uint64(uint32(m.Action.Micro))<<40
	h := (uint64(at)^odd1)*odd2 ^ (uint64(uint32(to))<<32|uint64(uint32(m.From)))*odd3
	k := (a^uint64(m.Step)<<20)*odd4 ^
		(uint64(uint32(m.Segment))|uint64(uint32(m.Comm))<<32^uint64(m.Job)<<8^uint64(m.Epoch)<<48)*odd1
	k ^= (uint64(m.Kind) | uint64(uint32(m.Member))<<8 | uint64(uint32(m.Port))<<40) * odd3
	h ^= h >> 29
	k ^= k >> 31
	was := &s.hashes[to]
	*was = (bits.RotateLeft64(*was, 23) ^ h*odd4 + k) * odd2
}

// hash is over what all actors were told, one after the other.
func (s *Sim) hash() uint64 {
	h := s.o.Seed ^ 0x9e3779b97f4a7c15
	for _, x := range s.hashes {
		h = (bits.RotateLeft64(h, 23) ^ x) * 0xbf58476d1ce4e5b9
	}
	return h
}
