package curate

import (
	"crypto/sha1"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/lfactor/lfactor/dataset/words"
)

// minhash_dedup: near duplicates by MinHash and locality-sensitive hashing, with Datatrove's parameters,
// hashes, buckets and clusters: of each cluster the document stays that Datatrove leaves.
var _ = Register(Kind{Name: "minhash_dedup", Doc: "drops documents that are nearly the same as another one",
	Source: "Broder 1997; Datatrove 0.10 MinhashDedupSignature, Buckets, Cluster and Filter",
	Settings: func() Settings {
		return &minHash{NGrams: 5, Buckets: 14, Hashes: 8, Seed: 1, Hash: "xxhash", Precision: 64}
	}})

// minHash is its settings. Documents of a similarity s share a bucket
// with probability 1-(1-s^hashes_per_bucket)^num_buckets.
// In the words of the field: deduplication, near-duplicate.
type minHash struct {
	NGrams    int    `yaml:"n_grams"` // words
	Buckets   int    `yaml:"num_buckets"`
	Hashes    int    `yaml:"hashes_per_bucket"`
	Seed      int64  `yaml:"seed"`
	Hash      string `yaml:"hash_fc"`
	Precision int    `yaml:"precision"`
	a, b      []uint64
}

// minHashesMax bounds the hashes of a document.
const minHashesMax = 1 << 14

func (m *minHash) Open() (Step, error) {
	switch {
	case m.NGrams < 1:
		return nil, &Fault{"n_grams", fmt.Sprintf("%d words make no n-gram", m.NGrams), "the usual number is 5"}
	case m.Buckets < 1 || m.Hashes < 1 || m.Buckets > minHashesMax/m.Hashes:
		return nil, &Fault{"num_buckets", fmt.Sprintf("%d buckets of %d hashes cannot be", m.Buckets, m.Hashes),
			"the usual numbers are 14 and 8"}
	case m.Hash != "xxhash" && m.Hash != "sha1":
		return nil, &Fault{"hash_fc", fmt.Sprintf("%q is none", m.Hash), "use xxhash or sha1"}
	case m.Precision != 64 && (m.Precision != 32 || m.Hash != "sha1"):
		return nil, &Fault{"precision", fmt.Sprintf("%d bits of %s are not made here", m.Precision, m.Hash),
			"use 64, or hash_fc: sha1 with 32"}
	case m.Seed < 0 || m.Seed > math.MaxUint32:
		return nil, &Fault{"seed", fmt.Sprintf("%d is not within 0 and 2³²-1", m.Seed), ""}
	}
	g := newTwister(uint32(m.Seed))
	n := m.Buckets * m.Hashes
	m.a, m.b = make([]uint64, n), make([]uint64, n)
	for i := range m.a {
		m.a[i] = 1 + g.below(mersenne-1)
	}
	for i := range m.b {
		m.b[i] = g.below(mersenne)
	}
	return m, nil
}

func (m *minHash) Columns() Columns           { return Columns{} }
func (m *minHash) Do(*Desk, *Doc) string      { return "" }
func (m *minHash) Drop(*Doc, []uint32) string { return "near_duplicate" }

func (m *minHash) Form() Form {
	return Form{Buckets: m.Buckets, Bytes: m.Hashes * m.Precision / 8, Clusters: true}
}

// Sign emits the least hashes of each bucket, as big-endian numbers, so that they compare as numbers do. A
// document with fewer words than an n-gram has none.
func (m *minHash) Sign(k *Desk, d *Doc, emit func(int, uint32, []byte)) {
	least := m.signature(k.cutter.Words(words.Simplify(d.Text)))
	key := make([]byte, 0, m.Form().Bytes)
	for b := range m.Buckets {
		if least == nil {
			return
		}
		key = key[:0]
		for _, h := range least[b*m.Hashes:][:m.Hashes] {
			if m.Precision == 32 {
				key = binary.BigEndian.AppendUint32(key, uint32(h))
			} else {
				key = binary.BigEndian.AppendUint64(key, h)
			}
		}
		emit(b, 0, key)
	}
}

// signature returns the least value of each permutation over all n-grams, nil where there are none.
func (m *minHash) signature(list []string) []uint64 {
	if len(list) < m.NGrams {
		return nil
	}
	var joined []byte
	ends := make([]int, len(list))
	for i, w := range list {
		joined = append(append(joined, w...), ' ')
		ends[i] = len(joined)
	}
	least := make([]uint64, len(m.a))
	for i := range least {
		least[i] = math.MaxUint64
	}
	from := 0
	for i := m.NGrams - 1; i < len(list); i++ {
		m.permute(m.shingle(joined[from:ends[i]-1]), least)
		from = ends[i-m.NGrams+1]
	}
	return least
}

// shingle is the hash of an n-gram.
func (m *minHash) shingle(text []byte) uint64 {
	if m.Hash == "xxhash" {
		return xxhash.Sum64(text)
	}
	h := sha1.Sum(text)
	if m.Precision == 32 {
		return uint64(binary.LittleEndian.Uint32(h[:]))
	}
	return binary.LittleEndian.Uint64(h[:])
}

// permute takes an n-gram's hash into the least ones. Products wrap at 64 bits, as numpy's do.
func (m *minHash) permute(s uint64, least []uint64) {
	a, b := m.a[:len(least)], m.b[:len(least)]
	if m.Precision == 32 {
		for i := range least {
			least[i] = min(least[i], fold(s*a[i]+b[i])&math.MaxUint32)
		}
		return
	}
	for i := range least {
		least[i] = min(least[i], fold(s*a[i]+b[i]))
	}
}

// fold is v modulo 2⁶¹-1.
func fold(v uint64) uint64 {
	v = v>>61 + v&mersenne
	if v >= mersenne {
		v -= mersenne
	}
	return v
}

// twister is numpy's RandomState: MT19937, seeded with one number.
type twister struct {
	state [624]uint32
	at    int
}

func newTwister(seed uint32) *twister {
	t := &twister{at: len(twister{}.state)}
	for i := range t.state {
		t.state[i] = seed
		seed = 1812433253*(seed^seed>>30) + uint32(i) + 1
	}
	return t
}

// next is the next 32 bits.
func (t *twister) next() uint32 {
	const n, m = 624, 397
	if t.at == n {
		for i := range n {
			y := t.state[i]&0x80000000 | t.state[(i+1)%n]&0x7fffffff
			t.state[i] = t.state[(i+m)%n] ^ y>>1 ^ (y&1)*0x9908b0df
		}
		t.at = 0
	}
	y := t.state[t.at]
	t.at++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// below returns a number in [0, n), 2⁶⁰ < n <= 2⁶¹, as randint does: 61 bits, drawn again while they are not below n.
func (t *twister) below(n uint64) uint64 {
	for {
		high := uint64(t.next())
		if v := (high<<32 | uint64(t.next())) & mersenne; v < n {
			return v
		}
	}
}
