package search

import (
	"fmt"
	"slices"
	"strings"
)

// Stages are cut by the multiplications of layers and head, unless a run file says otherwise. What these take is
// another matter: small products run at a lower rate, layers of narrow models mostly wait for calls and memory, and
// layers that are computed again take longer. Where stages cut by time make a plan shorter, or fit, that is the plan.

// gain is the share of a step that a cut of its own must save, for a plan that asks for nothing is simpler.
const gain = 0.01

// Recut estimates a plan of a pipeline, already estimated, with its stages cut by time, and puts that in
// its place where it is better. Plans with several stages a rank or an encoder stay as they are.
func (s *Space) Recut(c *Candidate) error {
	if c.PP < 2 || c.Loops > 1 || s.Tower != nil {
		return nil
	}
	x := *c
	var err error
	if x.Layers, err = s.evenTimes(c); err != nil || x.Layers == nil {
		return err
	}
	x.Why = ""
	if err := s.Estimate(&x); err != nil {
		return err
	}
	if x.Why == "" && (c.Why != "" || x.Step < (1-gain)*c.Step) {
		*c = x
	}
	return nil
}

// evenTimes cuts the layers of a plan so that its busiest stage takes least, and among such cuts all stages
// take most alike; nil where that is the cut it has. The embedding goes with the first stage, what lies
// behind the layers with the last.
func (s *Space) evenTimes(c *Candidate) ([]int, error) {
	key := stageKey{v: s.variant(c, s.place(c.Schedule, c.PP, c.Loops)), stages: c.PP}
	if x, ok := s.recuts[key]; ok {
		return x, nil
	}
	blocks, err := s.Profile(key.v)
	if err != nil {
		return nil, err
	}
	sums := make([]float64, s.Layers+1) // of the first so many layers, with what goes with them
	total := 0.0
	for i, b := range blocks {
		if total += b.F + b.I + b.W; i <= s.Layers {
			sums[i] = total
		}
	}
	x := cutEvenly(sums, total-sums[s.Layers], c.PP)
	now, err := s.LayersOf(c)
	if err != nil {
		return nil, err
	}
	if slices.Equal(x, now) {
		x = nil
	}
	s.recuts[key] = x
	return x, nil
}

// cutEvenly shares len(sums)-1 layers out over stages, at least one to each. sums are the times up to so many
// layers; the first is before all of them, and last is what the last stage has behind its own.
func cutEvenly(sums []float64, last float64, stages int) []int {
	type cut struct {
		most, squares float64
		from          int
	}
	layers := len(sums) - 1
	best := make([][]cut, stages+1) // by stages, then by layers that they have together
	best[0] = make([]cut, layers+1)
	for s := 1; s <= stages; s++ {
		best[s] = make([]cut, layers+1)
		for to := s; to <= layers; to++ {
			for from := s - 1; from < to && (s > 1 || from == 0); from++ {
				t := sums[to] - sums[from]
				if s == 1 {
					t = sums[to]
				}
				if s == stages {
					t += last
				}
				x := cut{max(best[s-1][from].most, t), best[s-1][from].squares + t*t, from}
				if b := &best[s][to]; b.most == 0 || x.most < b.most || x.most == b.most && x.squares < b.squares {
					*b = x
				}
			}
		}
	}
	out := make([]int, stages)
	for s, to := stages, layers; s > 0; s-- {
		from := best[s][to].from
		out[s-1], to = to-from, from
	}
	return out
}

// runsOf writes a number for each stage; stages that have as many as their neighbours are said together.
func runsOf(n []int) string {
	var runs []string
	for from := 0; from < len(n); {
		to := from
		for to < len(n) && n[to] == n[from] {
			to++
		}
		run := fmt.Sprint(n[from])
		if to > from+1 {
			run = fmt.Sprintf("%d×%s", to-from, run)
		}
		runs, from = append(runs, run), to
	}
	return strings.Join(runs, "+")
}
