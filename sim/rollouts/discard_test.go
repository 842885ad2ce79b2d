package rollouts

import (
	"math"
	"slices"
)

// discarded is what comes of it: the lengths of answers, and the greatest age of one that is trained on.
type discarded struct {
	Age            int64
	Drawn, Trained []float64
}

// discarding simulates, on a world's samplers and lengths and without faults, what peers do that bound age by
// dropping: Staleness+1 rounds of groups are under way at all times, the trainer takes those that end first,
// and one that is older than Staleness publications when it would be taken is dropped, and another prompt
// drawn in its place. Slow groups, which are long ones, are then missing from what is trained on.
func discarding(w World) discarded {
	type flight struct {
		index, version int64
		end            float64
	}
	var under []flight
	var out discarded
	next, now := int64(0), 0.0
	group := func(i int64) (most float64) {
		for k := range w.Each {
			most = max(most, w.length(i, 0, k))
		}
		return most
	}
	for round := range w.Rounds {
		for taken := 0; taken < w.Groups; {
			for len(under) < w.Groups*int(w.Schedule.Staleness+1) {
				under = append(under, flight{next, round, now + group(next)*w.Token})
				next++
			}
			first := 0
			for i, f := range under {
				if f.end < under[first].end {
					first = i
				}
			}
			f := under[first]
			under = slices.Delete(under, first, first+1)
			for k := range w.Each {
				out.Drawn = append(out.Drawn, w.length(f.index, 0, k))
			}
			if round-f.version > w.Schedule.Staleness {
				continue // too old: dropped
			}
			now = max(now, f.end)
			taken++
			out.Age = max(out.Age, round-f.version)
			for k := range w.Each {
				out.Trained = append(out.Trained, w.length(f.index, 0, k))
			}
		}
		now += w.Train
		under = slices.DeleteFunc(under, func(f flight) bool { // drawn on, though nobody will take them
			old := round+1-f.version > w.Schedule.Staleness
			for k := range w.Each {
				if old {
					out.Drawn = append(out.Drawn, w.length(f.index, 0, k))
				}
			}
			return old
		})
	}
	return out
}

// ks is the Kolmogorov-Smirnov distance of two samples: the greatest difference of their shares below a number.
func ks(a, b []float64) (most float64) {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	for i, j := 0, 0; i < len(a) && j < len(b); {
		x := min(a[i], b[j])
		for i < len(a) && a[i] == x {
			i++
		}
		for j < len(b) && b[j] == x {
			j++
		}
		most = max(most, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	return most
}
