package core

import (
	"cmp"
	"slices"
)

// Load is how a layer's experts were used in a step.
type Load struct {
	Block   int       // of the model
	Tokens  float64   // that were routed
	Dropped float64   // rows that no expert took
	Entropy float64   // of the router's shares, in nats, added up over tokens
	Rows    []float64 // by expert
}

// AppendLoad writes a load as numbers, which travel with a rank's values at the end of a step.
func AppendLoad(v []float64, l Load) []float64 {
	v = append(v, float64(l.Block), float64(len(l.Rows)), l.Tokens, l.Dropped, l.Entropy)
	return append(v, l.Rows...)
}

// Loads reads what AppendLoad has written.
func Loads(v []float64) (out []Load) {
	for len(v) >= 5 && len(v) >= 5+int(v[1]) {
		n := int(v[1])
		out = append(out, Load{Block: int(v[0]), Tokens: v[2], Dropped: v[3], Entropy: v[4],
			Rows: v[5 : 5+n]})
		v = v[5+n:]
	}
	return out
}

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
func loadsOf(closed [][]float64) (out []float64) {
	var all []Load
	for _, v := range closed {
		if len(v) <= ClosedLen {
			continue
		}
		all = addLoads(all, Loads(v[ClosedLen:]))
	}
	slices.SortFunc(all, func(a, b Load) int { return cmp.Compare(a.Block, b.Block) })
	for _, l := range all {
		out = AppendLoad(out, l)
	}
	return out
}
