package schedule

import (
	"fmt"

	"github.com/lfactor/lfactor/pipeline/plan"
)

var _ = register(Schedule{
	Name: "seq1f1b", Paper: "2406.03488", Runs: true, Loops: 1,
	Build: func(s Shape) (*plan.Program, error) {
		return sliced(s, func(r, k int) int { return s.Ranks - r - 2 + k })
	},
	Fits: func(s Shape) error {
		for m, k := range s.Split {
			if k != s.Split[0] {
				return fmt.Errorf("microbatch %d has %d slices and microbatch 0 %d: slices of different "+
					"numbers are for chunkpipe", m, k, s.Split[0])
			}
		}
		return nil
	},
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks-1)*u.Sum()/float64(most(s.Split))
	},
	Live: func(s Shape, rank int) int {
		k := most(s.Split)
		return 2 * min(s.Micro*k, s.Ranks-rank-1+k)
	},
})

var _ = register(Schedule{
	Name: "chunkpipe", Paper: "2503.02356", Runs: true, Loops: 1,
	Build: func(s Shape) (*plan.Program, error) {
		return sliced(s, func(r, k int) int { return 2*(s.Ranks-r-1) + k - 1 })
	},
	Fits: func(Shape) error { return nil },
	Time: func(s Shape, u Unit) float64 {
		return float64(s.Micro)*u.Sum() + float64(s.Ranks-1)*u.Sum()/float64(most(s.Split))
	},
	AtMost: true, When: func(s Shape, _ Unit) bool { return uniform(s.Split) },
	Live: func(s Shape, rank int) int { return 2 * (2*(s.Ranks-rank-1) + most(s.Split)) }, LiveBound: true,
})

// most is the most chunks of a microbatch.
func most(split []int) int {
	k := 1
	for _, x := range split {
		k = max(k, x)
	}
	return k
}

// uniform tells whether all microbatches are split into the same number of chunks.
func uniform(split []int) bool {
	for _, k := range split {
		if k != split[0] {
			return false
		}
	}
	return true
}

// sliced is 1F1B over chunks of sequences. Forwards ascend; backwards take the oldest sequence, its newest
// chunk first, because earlier chunks collect gradients of their keys and values from later ones. ahead is
// the number of forwards before the first backward of a rank, given the most chunks of a sequence; a rank
// runs more where the oldest sequence is not all there.
func sliced(s Shape, ahead func(rank, chunks int) int) (*plan.Program, error) {
	p := chain(s)
	var fs, bs []plan.Action
	for m := range s.Micro {
		n := p.NumChunks(m)
		for c := range n {
			f, b := act(plan.F, 0, m), act(plan.B, 0, m)
			f.Chunk, b.Chunk = int16(c), int16(n-1-c)
			fs, bs = append(fs, f), append(bs, b)
		}
	}
	last := make([]int, s.Micro) // place in fs of each sequence's last chunk
	for i, f := range fs {
		last[f.Micro] = i
	}
	for r := range s.Ranks {
		n := 0
		add := func(a plan.Action) {
			a.Stage = int16(r)
			p.Rows[r] = append(p.Rows[r], plan.Entry{Action: a})
		}
		for range min(len(fs), ahead(r, most(s.Split))) {
			add(fs[n])
			n++
		}
		for _, b := range bs {
			for first := true; n < len(fs) && (first || n <= last[b.Micro]); first = false {
				add(fs[n])
				n++
			}
			add(b)
		}
	}
	return p, nil
}
