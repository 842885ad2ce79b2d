package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/search"
)

// The closed forms know two kinds of plans: those that recompute in no layer, and those that recompute in
// every layer. Memory rarely needs the latter. This file takes the best plans that recompute everywhere and
// lowers, stage by stage, the number of layers that recompute to what the memory of the stage's rank needs.
// Early stages hold more microbatches at a time, so they keep more such layers.

// partlyMost is how many of the best plans that recompute are looked at.
const partlyMost = 6

// partly returns variants of the best plans that recompute in every layer: the same plans, with
// recomputation in fewer layers. The list is empty if no variant fits, if the model has parts beside the
// decoder, or if a plan has more ranks than are laid out in full.
func (p *Search) partly(ctx context.Context, all []search.Candidate) ([]search.Candidate, error) {
	var more []search.Candidate
	seen := 0
	for i := range all {
		c := &all[i]
		if c.Why != "" || c.Recompute == "none" || c.Encoder.Over != "" || c.Chunks > 1 {
			continue
		}
		if seen++; seen > partlyMost {
			break
		}
		x, ok, err := p.fewerLayers(ctx, *c)
		if err != nil {
			return nil, err
		}
		if ok {
			more = append(more, x)
		}
	}
	return more, nil
}

// fewerLayers is the plan with as few layers in each stage that recompute as fit; ok is false where all are
// needed, or where the plan is too large to be laid out.
func (p *Search) fewerLayers(ctx context.Context, c search.Candidate) (out search.Candidate, ok bool, err error) {
	l, err := p.laidOut(&c)
	if err != nil || l == nil {
		return c, false, err
	}
	most := make([]int, len(l.Stages)) // layers that recompute now
	for s, st := range l.Stages {
		for _, b := range l.Design.Model.Blocks[st.From:st.To] {
			if b.Recompute && b.Component == family.Foundation {
				most[s]++
			}
		}
	}
	low, high := make([]int, c.PP), make([]int, c.PP)
	for s, n := range most {
		r := l.Program.StageRank[s]
		high[r] = max(high[r], n)
	}
	whole := fmt.Sprint(high)
	for {
		c.RecomputeLayers = c.RecomputeLayers[:0:0]
		open := false
		for s := range most {
			r := l.Program.StageRank[s]
			open = open || low[r] < high[r]
			c.RecomputeLayers = append(c.RecomputeLayers, min(most[s], (low[r]+high[r])/2))
		}
		if l, err = p.laidOut(&c); err != nil || l == nil || ctx.Err() != nil {
			return c, false, err
		}
		for r := range c.PP {
			fits := l.Memory(l.Design.Mesh.Move(0, topology.PP, r)).WorstTotal() <= p.Space.Limit
			switch mid := (low[r] + high[r]) / 2; {
			case low[r] == high[r]:
			case fits:
				high[r] = mid
			default:
				low[r] = mid + 1
			}
		}
		if !open {
			break
		}
	}
	if fmt.Sprint(high) == whole || slices.Max(c.RecomputeLayers) == 0 { // the plan without is one of its own
		return c, false, nil
	}
	memory := worst(l)
	if err := p.Simulate(&c); err != nil {
		return c, false, err
	}
	c.Memory, c.Why = memory, "" // what the layout says is exact
	return c, memory <= p.Space.Limit, nil
}

// laidOut is a candidate's layout, nil for more ranks than are laid out in full.
func (p *Search) laidOut(c *search.Candidate) (*layout.Layout, error) {
	cfg, err := p.under(c)
	if err != nil {
		return nil, err
	}
	j, err := p.job(cfg)
	if err != nil || j.Mesh.Size() > exactRanks {
		return nil, err
	}
	j.Memory = 0
	l, err := layout.New(j)
	if err != nil {
		return nil, exit.With(err, exit.Usage)
	}
	return l, nil
}

// worst is the most memory that a rank of a layout needs, in bytes.
func worst(l *layout.Layout) (most int64) {
	for r := range l.Ranks {
		most = max(most, l.Memory(r).WorstTotal())
	}
	return
}

// rehearsed is the simulated step of a candidate that is laid out in full.
func (p *Search) rehearsed(ctx context.Context, c *search.Candidate) (*rehearsal.Summary, error) {
	cfg, err := p.under(c)
	if err != nil {
		return nil, err
	}
	return rehearsal.Simulate(ctx, cfg, rehearsal.Options{Machine: p.Machine})
}

// tooLarge reports whether a simulated step ran out of memory: in the order of its events a rank can hold more
// than in that of the layout's, and such a variant is none.
func tooLarge(err error) bool {
	var coded exit.Error
	return errors.As(err, &coded) && coded.Code == exit.Fit
}

// idle is the share of a simulated step in which the busiest rank neither computes nor waits for an exchange
// inside a pass, as closed forms count it.
func idle(s *rehearsal.Summary) float64 {
	busy := 0.0
	for _, r := range s.Ranks {
		busy = max(busy, r.Busy+r.Comm)
	}
	return max(0, 1-busy/s.Step)
}

// Settings are what a candidate changes in a run file.
func (p *Search) Settings(c *search.Candidate) []string {
	out := []string{fmt.Sprintf("plan.pp=%d", c.PP), fmt.Sprintf("plan.tp=%d", c.TP),
		fmt.Sprintf("plan.dp=%d", c.DP), fmt.Sprintf("plan.zero=%d", c.Zero), "plan.schedule=" + c.Schedule,
		fmt.Sprintf("plan.virtual_stages=%d", c.Loops), "plan.recompute=" + c.Recompute,
		fmt.Sprintf("plan.sequence_parallel=%v", c.SP), "plan.procs=1", fmt.Sprintf("train.micro_batch=%d", c.Batch),
		fmt.Sprintf("train.global_batch=%d", c.Batch*c.Micro*c.DP)}
	out = append(append(out, contextSettings(c, p.cfg.Run.Data.SeqLen)...), p.layersOf(c)...)
	if c.RecomputeLayers != nil {
		out = append(out, "plan.recompute_layers="+listText(c.RecomputeLayers))
	}
	if c.Groups > 0 || p.cfg.Run.Plan.ZeroRanks > 0 {
		out = append(out, fmt.Sprintf("plan.zero_ranks=%d", c.Groups))
	}
	if c.EP > 0 {
		out = append(out, fmt.Sprintf("plan.ep=%d", c.EP), fmt.Sprintf("plan.etp=%d", c.ETP))
	}
	out = append(append(out, p.forget...), p.encoderSettings(c)...)
	if c.Overlap {
		out = append(out, "plan.overlap=true")
	}
	if c.Pairs {
		out = append(out, "plan.overlap_microbatches=true")
	}
	return out
}

// listText writes numbers as a setting takes them.
func listText(n []int) string { return strings.ReplaceAll(fmt.Sprint(n), " ", ",") }
