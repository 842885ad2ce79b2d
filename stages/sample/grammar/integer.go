package grammar

import (
	"math/big"
	"strconv"
	"strings"
)

// integerMost is the largest integer that is written.
const integerMost = 999_999_999_999_999

// integer is the expression of integers within bounds.
func (s *schema) integer(k *keys) (node, error) {
	b, err := boundsOf(k)
	if err != nil {
		return node{}, err
	}
	if raw, ok := k.has("multipleOf"); ok {
		return s.multiples(k, raw, b, true)
	}
	if b.low == nil && b.high == nil {
		return ref(ruleInt), nil
	}
	lo, hi, one := int64(-integerMost), int64(integerMost), big.NewRat(1, 1)
	if b.low != nil {
		lo = max(lo, quotient(b.low, one, 1).Int64())
	}
	if b.high != nil {
		hi = min(hi, quotient(b.high, one, -1).Int64())
	}
	if lo > hi {
		return node{}, k.fault("minimum", "leaves no integer under maximum")
	}
	var out []node
	if lo < 0 {
		out = append(out, seq(lit("-"), naturals(max(1, -hi), -lo)))
	}
	if hi >= 0 {
		out = append(out, naturals(max(0, lo), hi))
	}
	return alt(out...), nil
}

// naturals is the numbers from lo to hi, 0 <= lo <= hi.
func naturals(lo, hi int64) node {
	var out []node
	for end := int64(9); lo <= hi; end = end*10 + 9 { // of equally many digits each
		if lo <= end {
			top := min(hi, end)
			out = append(out, digits(strconv.FormatInt(lo, 10), strconv.FormatInt(top, 10)))
			lo = top + 1
		}
	}
	return alt(out...)
}

// digits is the texts of digits from lo to hi, which are equally long.
func digits(lo, hi string) node {
	switch n := len(lo); {
	case n == 0:
		return seq()
	case lo[0] == hi[0]:
		return seq(lit(lo[:1]), digits(lo[1:], hi[1:]))
	default:
		zeros, nines := strings.Repeat("0", n-1), strings.Repeat("9", n-1)
		a, z := rune(lo[0]), rune(hi[0])
		var out []node
		if lo[1:] != zeros {
			out, a = append(out, seq(lit(lo[:1]), digits(lo[1:], nines))), a+1
		}
		if hi[1:] != nines {
			out, z = append(out, seq(lit(hi[:1]), digits(zeros, hi[1:]))), z-1
		}
		if a <= z {
			out = append(out, seq(set(a, z), rep(set('0', '9'), n-1, n-1)))
		}
		return alt(out...)
	}
}
