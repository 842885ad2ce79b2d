package profile

import (
	"cmp"
	"slices"
)

// span is from start to end in nanoseconds since the recorder began.
type span struct{ start, end int64 }

// spans are intervals; those that merge gives are in order and do not touch.
type spans []span

// merge joins overlapping intervals, within a window.
func (s spans) merge(in span) spans {
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	var out spans
	for _, x := range s {
		x.start, x.end = max(x.start, in.start), min(x.end, in.end)
		switch n := len(out) - 1; {
		case x.start >= x.end:
		case n >= 0 && x.start <= out[n].end:
			out[n].end = max(out[n].end, x.end)
		default:
			out = append(out, x)
		}
	}
	return out
}

// and is the time in both; without is the time in s only. Both take and give merged intervals.
func (s spans) and(o spans) (out spans) {
	for i, j := 0, 0; i < len(s) && j < len(o); {
		if x := (span{max(s[i].start, o[j].start), min(s[i].end, o[j].end)}); x.start < x.end {
			out = append(out, x)
		}
		if s[i].end < o[j].end {
			i++
		} else {
			j++
		}
	}
	return out
}

func (s spans) without(o spans) (out spans) {
	j := 0
	for _, x := range s {
		for j < len(o) && o[j].end <= x.start {
			j++
		}
		for k := j; k < len(o) && o[k].start < x.end; k++ {
			if x.start < o[k].start {
				out = append(out, span{x.start, o[k].start})
			}
			x.start = max(x.start, o[k].end)
		}
		if x.start < x.end {
			out = append(out, x)
		}
	}
	return out
}

// seconds is the sum of merged intervals.
func (s spans) seconds() float64 {
	var n int64
	for _, x := range s {
		n += x.end - x.start
	}
	return float64(n) / 1e9
}
