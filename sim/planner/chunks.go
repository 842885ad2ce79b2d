package planner

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/search"
)

// Sequences that are cut over time are looked at for few plans, since each is laid out and simulated with
// all ranks: chunks differ in work and memory, which no closed form counts.
const (
	chunkPlans = 8  // that are tried in chunks, of those that might gain
	chunkLeast = 64 // tokens of a chunk
	chunkRanks = 2  // up to which all plans that might gain are tried
	chunkMost  = 8  // devices beyond which chunks are tried only where no plan fits without
	chunkFew   = 2  // plans that are tried where none fits without
	// share of its closed form that a plan's work takes at least, for plans that cannot be faster than the best
	chunkBound = 0.95
	chunked    = "chunkpipe"
)

// chunkCounts are how many chunks a sequence is cut into.
var chunkCounts = []int{2, 4, 8, 16}

// inChunks tries plans whose microbatches, of one sequence, are cut into chunks: where a pipeline waits, or
// where a plan without chunks does not fit. It returns those that can be used.
func (p *Search) inChunks(ctx context.Context, all []search.Candidate) (out []search.Candidate, err error) {
	if p.Space.Tower != nil || p.Space.Devices > exactRanks || p.sensitive.To("plan.chunk_size", chunkLeast) != nil {
		return nil, nil
	}
	fits := map[string]int{} // the least count of chunks with which a lighter recomputation fits, by plan
	for _, c := range p.chunkable(all) {
		p.weighLayers(&c)
		plain := c
		plain.Recompute, plain.Chunks = "none", 0
		now := 0
		for _, n := range chunkCounts {
			seq := p.cfg.Run.Data.SeqLen
			if least, ok := fits[plain.String()]; seq%n != 0 || seq/n < chunkLeast || ok && n >= least {
				continue
			}
			c.Chunks, c.Why, c.Simulated = n, "", 0
			ok, err := p.wholly(ctx, &c)
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, c)
				now = cmp.Or(now, n)
			}
		}
		if now > 0 {
			fits[plain.String()] = now
		}
	}
	return out, nil
}

// wholly lays a candidate out and simulates it with all ranks, and says whether it can be used.
func (p *Search) wholly(ctx context.Context, c *search.Candidate) (bool, error) {
	if ctx.Err() != nil {
		return false, exit.With(errors.New("interrupted"), exit.Interrupted)
	}
	if p.confirm(c) != "" {
		return false, nil
	}
	cfg, err := p.under(c)
	if err != nil {
		return false, err
	}
	sum, err := rehearsal.Simulate(ctx, cfg, rehearsal.Options{Machine: p.Machine})
	if err != nil {
		return false, nil // what cannot be run is no plan
	}
	c.Simulated, c.Step, c.Bubble = sum.Step, sum.Step, idle(sum)
	return true, nil
}

// chunkable lists the plans to try in chunks: the fastest by closed forms first, each with every kind of recomputation;
// or, where no plan fits without chunks, those that need least memory, with full recomputation.
func (p *Search) chunkable(all []search.Candidate) (out []search.Candidate) {
	sorted := slices.Clone(all)
	slices.SortStableFunc(sorted, func(a, b search.Candidate) int { return cmp.Compare(a.Step, b.Step) })
	seen, best, most := map[string]bool{}, math.Inf(1), chunkPlans
	for i := range all {
		if all[i].Why == "" {
			best = min(best, cmp.Or(all[i].Simulated, all[i].Step))
		}
	}
	kinds := []string{"none", "selective", "full"}
	switch nothing := math.IsInf(best, 1); {
	case p.Space.Devices <= chunkRanks:
	case nothing: // those that need least memory come nearest
		most, kinds = chunkFew, kinds[2:]
		slices.SortStableFunc(sorted, func(a, b search.Candidate) int {
			return cmp.Compare(a.Memory, b.Memory)
		})
	case p.Space.Devices > chunkMost:
		return nil
	}
	for _, c := range sorted {
		if chunkBound*c.Step*(1-c.Bubble) > best { // even if it never waited
			continue
		}
		if c.Batch > 1 || c.PP == 1 && c.Why != "memory" || c.Comm == "ulysses" {
			continue
		}
		c.Schedule, c.Loops, c.Recompute, c.RecomputeLayers = chunked, 1, "selective", nil
		if seen[c.String()] || p.Space.Devices > chunkRanks && len(seen) == most {
			continue
		}
		seen[c.String()] = true
		for _, c.Recompute = range kinds {
			out = append(out, c)
		}
		if c.Overlap {
			c.Overlap = false // which needs less
			for _, c.Recompute = range kinds {
				out = append(out, c)
			}
		}
	}
	return out
}
