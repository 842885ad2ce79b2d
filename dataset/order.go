package dataset

import "math/bits"

// Permutation is a random order of 0 … n-1 that takes no memory: each place is computed. It is a Feistel network of
// permutationRounds rounds on the smallest even number of bits that holds n, walked until it lands below n
// (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), in fewer than four steps on average.
type Permutation struct {
	n    uint64
	half int // bits of one half
	keys [permutationRounds]uint64
}

const permutationRounds = 6

// NewPermutation returns the order of n elements, n >= 1, that belongs to the key: all orders of a run differ in
// their keys.
func NewPermutation(n int64, seed uint64, pass, block, stream int64) Permutation {
	if n < 1 {
		panic("dataset: a permutation of no elements")
	}
	p := Permutation{n: uint64(n), half: max(1, (bits.Len64(uint64(n-1))+1)/2)}
	for i := range p.keys {
		p.keys[i] = Draw(seed, pass, stream, block, int64(i))
	}
	return p
}

// At returns the element at place i, 0 <= i < n.
func (p *Permutation) At(i int64) int64 {
	x := uint64(i)
	for {
		if x = p.step(x); x < p.n {
			return int64(x)
		}
	}
}

// step permutes all numbers of 2·half bits.
func (p *Permutation) step(x uint64) uint64 {
	mask := uint64(1)<<p.half - 1
	left, right := x>>p.half, x&mask
	for _, k := range p.keys {
		left, right = right, left^mix(right^k)&mask
	}
	return left<<p.half | right
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
