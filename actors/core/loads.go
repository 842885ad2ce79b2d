package core

import (
	"cmp"
	"slices"
)

// addLoads adds loads to those of the same blocks.
func addLoads(all, more []Load) []Load {
	for _, l := range more {
		i := slices.IndexFunc(all, func(x Load) bool { return x.Block == l.Block })
		if i < 0 {
			l.Rows = slices.Clone(l.Rows)
			all = append(all, l)
			continue
		}
		x := &all[i]
		x.Tokens, x.Dropped, x.Entropy = x.Tokens+l.Tokens, x.Dropped+l.Dropped, x.Entropy+l.Entropy
		for e, n := range l.Rows {
			x.Rows[e] += n
		}
	}
	return all
}

// cloneLoads are loads that others may be added to.
func cloneLoads(all []Load) []Load {
	out := slices.Clone(all)
	for i := range out {
		out[i].Rows = slices.Clone(out[i].Rows)
	}
	return out
}

// loadsOf adds up, in order of ranks, what they say behind their values; nil if none says anything.
func loadsOf(closed []said) (out []float64) {
	var all []Load
	for i := range closed {
		all = addLoads(all, Loads(closed[i].more))
	}
	slices.SortFunc(all, func(a, b Load) int { return cmp.Compare(a.Block, b.Block) })
	for _, l := range all {
		out = AppendLoad(out, l)
	}
	return out
}

// findingsOf lists, in order of parameters, what ranks have found, nil for nothing.
func findingsOf(closed []said) (out []float64) {
	var all []Finding
	for i := range closed {
		all = append(all, Findings(closed[i].more)...)
	}
	slices.SortFunc(all, func(a, b Finding) int { return cmp.Compare(a.Param, b.Param) })
	for _, f := range all {
		out = AppendFinding(out, f)
	}
	return out
}
