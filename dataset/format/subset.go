package format

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// subset is part of a data set: numbers of samples first, and of what they leave shares. Shares of several
// levels are multiplied before any sample is counted, so that nothing is rounded twice. The zero value is all.
// Source: megatron-energon 7.4.1, metadataset_v2.Subset and structs.DatasetSubset.
type subset struct {
	absolute bool
	from, to int64 // samples; to -1 for the end
	shared   bool
	low, up  float64 // shares
}

// read reads a range: two percentages, or two numbers; the second may be "end".
func (p *metaPart) read() (out subset, err error) {
	bad := func(why string) (subset, error) { return subset{}, fmt.Errorf("the range %q: %s", p.Range, why) }
	share := [2]bool{}
	at := [2]float64{}
	for i, text := range p.Range {
		text = strings.TrimSpace(text)
		if i == 1 && text == "end" {
			share[1], at[1] = share[0], -1
			continue
		}
		number, percent := strings.CutSuffix(text, "%")
		x, err := strconv.ParseFloat(number, 64)
		if err != nil || !(x >= 0) || x > 1<<53 || !percent && x != float64(int64(x)) {
			return bad("want percentages or numbers of samples")
		}
		share[i], at[i] = percent, x
	}
	if share[0] != share[1] {
		return bad("both are percentages or both numbers of samples")
	}
	if !share[0] {
		if at[1] >= 0 && at[0] > at[1] {
			return bad("its end is before its start")
		}
		return subset{absolute: true, from: int64(at[0]), to: int64(at[1])}, nil
	}
	if at[1] < 0 {
		at[1] = 100
	}
	if at[0] > at[1] || at[1] > 100 {
		return bad("want 0 % ≤ start ≤ end ≤ 100 %")
	}
	return subset{shared: true, low: at[0] / 100, up: at[1] / 100}, nil
}

// within is the subset of what the levels around take.
func (s subset) within(outer subset) (subset, error) {
	if outer.absolute {
		return s, errors.New("numbers of samples are of a data set itself; the levels around it take percentages")
	}
	if !outer.shared {
		return s, nil
	}
	low, up := s.low, s.up
	if !s.shared {
		low, up = 0, 1
	}
	s.shared, s.low, s.up = true, low+outer.low*(up-low), low+outer.up*(up-low)
	return s, nil
}

// of returns the samples of a data set of n that are in the subset, from and to-1. Shares give whole samples
// as Energon counts them, rounded down.
func (s subset) of(n int64) (from, to int64, err error) {
	to = n
	if s.absolute {
		from = s.from
		if s.to >= 0 {
			to = s.to
		}
		if to > n || from > to {
			return 0, 0, fmt.Errorf("subset: samples %d to %d of %d", from, to, n)
		}
	}
	if s.shared {
		all := float64(to - from)
		to = from + int64(all*s.up)
		from += int64(all * s.low)
	}
	return from, to, nil
}
