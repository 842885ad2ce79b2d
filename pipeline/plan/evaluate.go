package plan

import (
	"fmt"
	"math"
)

// Costs prices the passes of a program, in any one unit of time. Slices are by stage; a nil slice is 1 each.
type Costs struct {
	F, I, W []float64
	Comm    float64   // of a message between two ranks; the sender is free at once and links never queue
	Pair    float64   // duration of an overlapped pair as a share of its parts' sum; 0 is 1
	Chunk   []float64 // factor of each chunk of a microbatch; nil is 1 each: costs are of one chunk
}

// Timing is a program run as soon as possible under Costs.
type Timing struct {
	Start, End [][]float64 // by rank and index in its row
	Makespan   float64     // from the first start to the last end of all
	// longest span of one rank, first start to last end: what Zero Bubble papers call cost
	Longest    float64
	Span, Busy []float64 // by rank
	// by rank, in half activations of a stage: F holds two, I gives one back and W the other
	Peak []int
}

// BubbleLongest is the idle share of the longest rank's span: the bubble rate of arXiv:2401.10241.
func (t *Timing) BubbleLongest() float64 { return 1 - t.mostBusy()/t.Longest }

// BubbleMakespan is the idle share of the whole step.
func (t *Timing) BubbleMakespan() float64 { return 1 - t.mostBusy()/t.Makespan }

// mostBusy is the time that the busiest rank computes, a bound that no order of the same actions can beat.
func (t *Timing) mostBusy() (b float64) {
	for _, x := range t.Busy {
		b = max(b, x)
	}
	return
}

// Check refuses costs that are no durations.
func (c *Costs) Check(stages int) error {
	for k, xs := range [][]float64{c.F, c.I, c.W} {
		if xs != nil && len(xs) != stages {
			return fmt.Errorf("costs of %v: %d stages, the program has %d", []Kind{F, I, W}[k], len(xs), stages)
		}
		for s, x := range xs {
			if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
				return fmt.Errorf("costs of %v: stage %d takes %v", []Kind{F, I, W}[k], s, x)
			}
		}
	}
	for s, x := range append([]float64{c.Comm, c.Pair}, c.Chunk...) {
		if math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
			return fmt.Errorf("costs of communication, pairs and chunks: entry %d is %v", s, x)
		}
	}
	return nil
}

// Of is the duration of one action.
func (c *Costs) Of(a Action) float64 {
	of := func(xs []float64) float64 {
		if xs == nil {
			return 1
		}
		return xs[a.Stage]
	}
	t := 0.0
	switch a.Kind {
	case F:
		t = of(c.F)
	case I:
		t = of(c.I)
	case W:
		t = of(c.W)
	case B:
		t = of(c.I) + of(c.W)
	}
	if c.Chunk != nil {
		t *= c.Chunk[a.Chunk]
	}
	return t
}

// entry is the time of an entry. Two actions that run together take their sum times Pair, which is below 1 where one's
// communication hides behind the other's computing; 0 means that it was not given.
func (c *Costs) entry(e Entry) float64 {
	if e.With.Kind == None {
		return c.Of(e.Action)
	}
	both := c.Of(e.Action) + c.Of(e.With)
	if c.Pair > 0 {
		both *= c.Pair
	}
	return both
}

// Evaluate runs the program as soon as its order and its waits allow. It fails with a *CheckError at a deadlock.
func (p *Program) Evaluate(c Costs) (*Timing, error) {
	if err := c.Check(len(p.StageRank)); err != nil {
		return nil, err
	}
	if p.Homes != nil {
		return p.evaluateHomes(c)
	}
	w := newWalk(p)
	out := &Timing{Start: make([][]float64, len(p.Rows)), End: make([][]float64, len(p.Rows)),
		Span: make([]float64, len(p.Rows)), Busy: make([]float64, len(p.Rows)), Peak: make([]int, len(p.Rows))}
	ends, held := make([]float64, w.t.size), make([]int, len(p.Rows))
	for r, row := range p.Rows {
		out.Start[r], out.End[r] = make([]float64, 0, len(row)), make([]float64, 0, len(row))
	}
	w.run(func(r int, e Entry) {
		start := 0.0
		if n := len(out.End[r]); n > 0 {
			start = out.End[r][n-1]
		}
		for _, a := range [2]Action{e.Action, e.With} {
			w.t.needs(a, func(n, stage int) bool {
				at := ends[n]
				if p.StageRank[stage] != r {
					at += c.Comm
				}
				start = max(start, at)
				return true
			})
		}
		took := c.entry(e)
		for _, a := range [2]Action{e.Action, e.With} {
			hs, n := w.t.works(a)
			for _, h := range hs[:n] {
				ends[h] = start + took
				if held[r]++; h%halves == halfF {
					held[r]++
					out.Peak[r] = max(out.Peak[r], held[r])
				} else {
					held[r] -= 2
				}
			}
		}
		out.Start[r], out.End[r] = append(out.Start[r], start), append(out.End[r], start+took)
		out.Busy[r] += took
	})
	if err := w.stuck(); err != nil {
		return nil, err
	}
	out.sum()
	return out, nil
}

// sum derives the totals from the starts and ends of the entries: each rank's span from its first
// to its last, and the makespan of all. Rows without entries count for nothing.
func (t *Timing) sum() {
	first, last := math.Inf(1), 0.0
	for r, s := range t.Start {
		if len(s) == 0 {
			continue
		}
		end := t.End[r][len(s)-1]
		t.Span[r] = end - s[0]
		t.Longest, first, last = max(t.Longest, t.Span[r]), min(first, s[0]), max(last, end)
	}
	if last > 0 {
		t.Makespan = last - first
	}
}
