package curate

import (
	"math/bits"
	"unicode/utf8"
)

// repeats finds equal pieces of a text by their hashes: polynomials modulo 2⁶¹-1 over all its bytes, so that
// any piece's hash is two products away. Two unequal pieces of a text of a million words are taken for equal
// with a chance below 1e-6.
type repeats struct {
	powers, sums []uint64 // to the byte
}

const (
	mersenne = 1<<61 - 1
	radix    = 0x1357_9bdf_2468_ace1 % mersenne
)

// mulMod multiplies modulo 2⁶¹-1.
func mulMod(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	r := lo&mersenne + (lo>>61 | hi<<3)
	if r >= mersenne {
		r -= mersenne
	}
	return r
}

// over prepares pieces of a sequence of values.
func (r *repeats) over(n int, value func(i int) uint64) {
	if len(r.powers) == 0 {
		r.powers = append(r.powers, 1)
	}
	for len(r.powers) <= n {
		r.powers = append(r.powers, mulMod(r.powers[len(r.powers)-1], radix))
	}
	r.sums = append(r.sums[:0], 0)
	for i := range n {
		s := mulMod(r.sums[i], radix) + value(i) + 1
		if s >= mersenne {
			s -= mersenne
		}
		r.sums = append(r.sums, s)
	}
}

// hash returns the hash of the values from from to to-1.
func (r *repeats) hash(from, to int) uint64 {
	h := r.sums[to] + mersenne - mulMod(r.sums[from], r.powers[to-from])
	if h >= mersenne {
		h -= mersenne
	}
	return h
}

// duplicates returns how many elements stand in a list again, and how many characters those have.
func duplicates(list []string) (elements, chars int) {
	seen := make(map[string]struct{}, len(list))
	for _, s := range list {
		if _, ok := seen[s]; ok {
			elements++
			chars += utf8.RuneCountInString(s)
		} else {
			seen[s] = struct{}{}
		}
	}
	return elements, chars
}
