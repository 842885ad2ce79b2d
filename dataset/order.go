package dataset

import "math/bits"

// Permutation is a random order of 0 … n-1 that takes no memory: each place is computed. It is a Feistel network of
// permutationRounds rounds on the smallest even number of bits that holds n, walked until it lands below n (Black and
// Rogaway, "Ciphers with Arbitrary Finite Domains", 2002), in fewer than four steps on average.
type Permutation struct {
	n    uint64
	half int // bits of one half
	keys [permutationRounds]uint64
}

const permutationRounds = 6

// NewPermutation returns the order of n elements, n >= 1, that belongs to the key: all orders of a run
// differ in their keys.
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

// order is a random order of a source's documents in one pass.
type order interface {
	// At returns the document at place i, 0 <= i < n.
	At(i int64) int64
}

// fileOrder is the order of the source itself.
type fileOrder struct{}

// At implements order.
func (fileOrder) At(i int64) int64 { return i }

// orderRuns is how many runs of documents a window of an order has: 256 of each of ten shards, which are
// megabytes where shards are gigabytes.
const orderRuns = 2560

// newOrder returns the order of n documents in a pass, within windows of a number of documents; 0 means one of all.
func newOrder(n, window int64, seed uint64, pass, source int64) order {
	if window <= 0 || window >= n {
		p := NewPermutation(n, seed, pass, blockOrder, source)
		return &p
	}
	run := max(1, window/orderRuns)
	w := &windowOrder{n: n, run: run, runs: max(1, window/run), seed: seed, pass: pass, source: source, at: -1}
	w.order = NewPermutation(max(1, n/run), seed, pass, blockOrder, source)
	return w
}

// windowOrder puts runs of documents in random order, cuts that into windows, and puts the documents of each
// window in random order. The documents behind the last whole run belong to the last window.
type windowOrder struct {
	n, run, runs int64 // documents; documents of a run; runs of a window
	order        Permutation
	seed         uint64
	pass, source int64

	at     int64 // the window that inside belongs to, -1 for none
	inside Permutation
}

// At implements order.
func (w *windowOrder) At(i int64) int64 {
	size := w.run * w.runs
	whole := w.n / w.run
	windows := (whole + w.runs - 1) / w.runs
	at := min(i/size, windows-1)
	first := at * w.runs
	runs := min(w.runs, whole-first)
	n := runs * w.run
	if at == windows-1 {
		n = w.n - first*w.run
	}
	if w.at != at {
		w.at, w.inside = at, NewPermutation(n, w.seed, w.pass, blockWindow+at<<8, w.source)
	}
	e := w.inside.At(i - at*size)
	if e >= runs*w.run {
		return whole*w.run + e - runs*w.run
	}
	return w.order.At(first+e/w.run)*w.run + e%w.run
}
