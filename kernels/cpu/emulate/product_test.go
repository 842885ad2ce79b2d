package emulate

import (
	"fmt"
	"math"
)

// product is TDPBF16PS, tile += left·right: left has rows of pairs of bfloat16 along the sum, right has a
// row for each pair.
func (u *unit) product(in instruction) error {
	c, a, b := in.tile, in.left, in.right
	if c == a || a == b || c == b {
		return fmt.Errorf("#UD: TDPBF16PS of tiles %d, %d, %d, which must differ", c, a, b)
	}
	for _, t := range []int{c, a, b} {
		if err := u.valid(t); err != nil {
			return err
		}
		if u.bytes[t]%4 != 0 {
			return fmt.Errorf("#UD: rows of tile %d have %d bytes, no multiple of 4", t, u.bytes[t])
		}
	}
	if u.rows[c] != u.rows[a] || u.bytes[c] != u.bytes[b] || u.bytes[a]/4 != u.rows[b] {
		return fmt.Errorf("#UD: TDPBF16PS of %d×%d bytes += %d×%d · %d×%d",
			u.rows[c], u.bytes[c], u.rows[a], u.bytes[a], u.rows[b], u.bytes[b])
	}
	mulAdd(&u.data[c], &u.data[a], &u.data[b], u.rows[c], u.rows[b], u.bytes[c]/4)
	return nil
}

// mulAdd adds the product of a, m rows of k pairs, and b, k rows of n pairs, to c. As the SDM says, the first and the
// second elements of pairs are summed apart from 0 on, in order and with fused multiply-adds; then come the sum of the
// two and the sum with c. Every operation rounds to the nearest even float32; subnormal operands and results are 0.
func mulAdd(c, a, b *tile, m, k, n int) {
	var b0, b1 [tileRows][tileRowBytes / 4]float32
	for p := range k {
		for j := range n {
			b0[p][j], b1[p][j] = pair(b[p][j])
		}
	}
	step := fusedRow
	if tame(a) && tame(b) {
		step = plainRow
	}
	for i := range m {
		var s0, s1 [tileRowBytes / 4]float32
		for p := range k {
			x0, x1 := pair(a[i][p])
			step(&s0, x0, &b0[p])
			step(&s1, x1, &b1[p])
		}
		for j := range n {
			c[i][j] = math.Float32bits(add(zeroed(math.Float32frombits(c[i][j])), add(s0[j], s1[j])))
		}
	}
}

// pair widens two bfloat16 to float32.
func pair(w uint32) (lo, hi float32) {
	return math.Float32frombits(w << 16), math.Float32frombits(w &^ 0xFFFF)
}

// fusedRow is s += x·y in the general case.
func fusedRow(s *[tileRowBytes / 4]float32, x float32, y *[tileRowBytes / 4]float32) {
	for j := range s {
		s[j] = fma(x, y[j], s[j])
	}
}

// plainRow is s += x·y for operands that are tame.
func plainRow(s *[tileRowBytes / 4]float32, x float32, y *[tileRowBytes / 4]float32) {
	for j := range s {
		s[j] += x * y[j]
	}
}

// tame tells whether all elements are 0 or lie between 2^-55 and 2^56. Products of such elements are exact
// in float32, so that a fused step and two others agree; sums are multiples of 2^-124 and below 2^117, hence
// neither subnormal nor infinite.
func tame(t *tile) bool {
	for i := range t {
		for _, w := range t[i] {
			for _, h := range [2]uint32{w & 0x7FFF, w >> 16 & 0x7FFF} {
				if e := h >> 7; h != 0 && (e < 127-55 || e > 127+55) {
					return false
				}
			}
		}
	}
	return true
}

// fma is x·y + s rounded once. The product of two bfloat16 is exact in float64; a sum of two numbers of 24
// bits that is rounded to 53 bits and then to 24 is the one that is rounded once, since 53 ≥ 2·24 + 2.
func fma(x, y, s float32) float32 {
	return rounded(float64(zeroed(x))*float64(zeroed(y)) + float64(s))
}

func add(x, y float32) float32 { return rounded(float64(x) + float64(y)) }

// zeroed is x with 0 in the place of a subnormal number.
func zeroed(x float32) float32 {
	if b := math.Float32bits(x); b&0x7F800000 == 0 {
		return math.Float32frombits(b & 0x80000000)
	}
	return x
}

// rounded is the float32 nearest to d, or 0 where that is subnormal. The exponent counts as unbounded in the rounding
// that decides it: what is closer to 2^-126 than to the number of 24 bits below it is not subnormal.
func rounded(d float64) float32 {
	if math.Abs(d) < 0x1p-126-0x1p-151 {
		return float32(math.Copysign(0, d))
	}
	return float32(d)
}
