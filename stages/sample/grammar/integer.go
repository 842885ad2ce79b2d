package grammar

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// integerMost is the largest integer that is written.
const integerMost = 999_999_999_999_999

// integer is the expression of integers within bounds.
func integer(k *keys) (node, error) {
	lo, hi, bounded := int64(-integerMost), int64(integerMost), false
	for _, b := range []struct {
		key  string
		move float64 // from the bound to the integer next to it
		low  bool
	}{{"minimum", 0, true}, {"exclusiveMinimum", 1, true}, {"maximum", 0, false}, {"exclusiveMaximum", -1, false}} {
		raw, ok := k.has(b.key)
		if !ok {
			continue
		}
		var x float64
		if json.Unmarshal(raw, &x) != nil || math.Abs(x) > integerMost {
			return node{}, k.fault(b.key, "is %s, and no number of at most %d digits", clip(raw), digitsMost)
		}
		bounded = true
		switch whole := x == math.Trunc(x); {
		case b.low && whole:
			lo = max(lo, int64(x+b.move))
		case b.low:
			lo = max(lo, int64(math.Ceil(x)))
		case whole:
			hi = min(hi, int64(x+b.move))
		default:
			hi = min(hi, int64(math.Floor(x)))
		}
	}
	if lo > hi {
		return node{}, k.fault("minimum", "leaves no integer under maximum")
	}
	if !bounded {
		return ref(ruleInt), nil
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
