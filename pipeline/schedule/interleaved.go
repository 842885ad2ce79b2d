package schedule

import (
	"github.com/lfactor/lfactor/pipeline/plan"
)

var _ = register(Schedule{
	Name: "interleaved", Paper: "2104.04473", Build: interleaved, Runs: true,
	Pairs: true,
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks-1)*u.Sum()/float64(s.Loops)
	},
	When: func(s Shape, _ Unit) bool { return s.Micro%s.Ranks == 0 && s.Group == 0 },
	Live: func(s Shape, rank int) int {
		return 2 * min(s.Micro*s.Loops, s.warmup(rank, groups(s)[0])+1)
	},
})

// warmup is the forwards of rank before its first backward: what is on the way to the last stage and back.
// With one stage a rank it is that of 1F1B. Where a forward and a backward are one entry, a microbatch's
// backward comes one entry after its forward on the last stage, and takes a whole entry for each stage.
// In the words of the field: interleaved schedule, virtual pipeline stage.
func (s Shape) warmup(rank, group int) int {
	if s.Pairs {
		return 2*(s.Ranks-rank-1) + (s.Loops-1)*group + 1
	}
	if s.Loops == 1 {
		return s.Ranks - rank - 1
	}
	return 2*(s.Ranks-rank-1) + (s.Loops-1)*group
}

// groups cuts the microbatches into runs of one stage: of Group each, the last one shorter; by default as
// many runs as there are whole multiples of Ranks, with lengths that differ by at most one, so that no run
// is shorter than the pipeline.
func groups(s Shape) (out []int) {
	if g := s.Group; g > 0 {
		for left := s.Micro; left > 0; left -= g {
			out = append(out, min(g, left))
		}
		return
	}
	n := max(1, s.Micro/s.Ranks)
	for i := range n {
		out = append(out, s.Micro*(i+1)/n-s.Micro*i/n)
	}
	// the longer runs first: the warm-up counts with the first
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return
}

// interleaved is Megatron's depth-first schedule of several stages a rank: 1F1B over groups of microbatches,
// each group going through all of a rank's stages before the next. Groups may be ragged; a rank then runs
// further forwards ahead where the order would otherwise wait for itself.
func interleaved(s Shape) (*plan.Program, error) {
	fs, bs := tableOf(s)
	for extra := 0; ; extra++ {
		p := placed(s, s.Loops, func(stage int) int { return stage % s.Ranks })
		for r := range s.Ranks {
			warm := min(len(fs), s.warmup(r, groups(s)[0])+extra)
			p.Rows[r] = alternate(r, s, fs, bs, warm)
		}
		if err := p.Check(); err == nil || extra > s.Micro*s.Loops {
			return p, err
		}
	}
}

// item is a microbatch in one of a rank's stages.
type item struct{ loop, micro int }

// tableOf lists the forwards and backwards of every rank in order.
func tableOf(s Shape) (fs, bs []item) {
	first := 0
	for _, g := range groups(s) {
		for l := range s.Loops {
			for m := first; m < first+g; m++ {
				fs = append(fs, item{l, m})
				bs = append(bs, item{s.Loops - 1 - l, m})
			}
		}
		first += g
	}
	return
}

// alternate runs warm forwards, then one forward and one backward in turns or as one entry, then the
// backwards that are left.
func alternate(r int, s Shape, fs, bs []item, warm int) (row []plan.Entry) {
	of := func(k plan.Kind, x item) plan.Entry { return entry(k, x.loop*s.Ranks+r, x.micro) }
	for _, f := range fs[:warm] {
		row = append(row, of(plan.F, f))
	}
	for i, b := range bs {
		back := of(plan.B, b)
		switch {
		case warm+i >= len(fs):
			row = append(row, back)
		case s.Pairs:
			both := of(plan.F, fs[warm+i])
			both.With = back.Action
			row = append(row, both)
		default:
			row = append(row, of(plan.F, fs[warm+i]), back)
		}
	}
	return
}
