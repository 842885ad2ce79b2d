package planner

import (
	"context"
	"slices"

	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/cost"
	"github.com/lfactor/lfactor/topology/search"
)

// On a machine with two kinds of devices a stage runs as fast as its slowest rank. Stages get layers by
// their rates, and plans are ranked by a simulation of all ranks, each with the rates of its own device.

// weighed are the layers of each stage of a candidate by the rates of its devices, nil where all have one.
func (p *Search) weighed(c *search.Candidate) []int {
	layers := p.cfg.Model.Layers
	if p.Machine.Second == nil || c.PP < 2 || c.Loops > 1 || layers < c.PP {
		return nil
	}
	load, layer, err := p.loads(c)
	if err != nil {
		return nil
	}
	rates := make([]float64, c.PP)
	mesh := topology.Grid(c.PP, c.DP, c.TP)
	for r := range mesh.Size() {
		s, f := mesh.At(r, topology.PP), p.Machine.Kind(r).Flops
		if rates[s] == 0 || f < rates[s] {
			rates[s] = f
		}
	}
	n, left := make([]int, c.PP), layers
	for s := range n {
		n[s], load[s] = 1, load[s]+layer
		left--
	}
	for ; left > 0; left-- { // to the stage that is done first with one more
		best := 0
		for s := range n {
			if (load[s]+layer)/rates[s] < (load[best]+layer)/rates[best] {
				best = s
			}
		}
		n[best]++
		load[best] += layer
	}
	return n
}

// weighLayers gives a candidate the layers of its stages where devices have several rates.
func (p *Search) weighLayers(c *search.Candidate) {
	if n := p.weighed(c); n != nil {
		c.Layers = n
	}
}

// layersOf sets the layers of each stage of a candidate, where it says anything of them.
func (p *Search) layersOf(c *search.Candidate) []string {
	if c.Layers != nil {
		return []string{"plan.layers=" + listText(c.Layers)}
	} else if len(p.cfg.Run.Plan.Layers) > 0 {
		return []string{"plan.layers=[]"}
	}
	return nil
}

// fewer is the machine for a plan with one replica in place of each times many: stages are runs of ranks, so
// that the second kind of devices begins as far into the plan.
func (p *Search) fewer(times int) *cost.Machine {
	if p.Machine.Second == nil || times <= 1 {
		return p.Machine
	}
	m, second := *p.Machine, *p.Machine.Second
	second.From /= times
	m.Second = &second
	return &m
}

// loads are the seconds, on a device of the first kind, that a microbatch takes each stage beside its
// layers: the embedding, the head, and the share of an encoder that its ranks encode; and those of a layer.
func (p *Search) loads(c *search.Candidate) (stages []float64, layer float64, err error) {
	blocks, err := p.Space.Profile(search.Variant{TP: c.TP, SP: c.SP, Batch: c.Batch, Recompute: c.Recompute,
		EP: c.EP, ETP: c.ETP})
	if err != nil {
		return nil, 0, err
	}
	sum := func(blocks []search.BlockCost) (t float64) {
		for _, b := range blocks {
			t += b.F + b.I + b.W
		}
		return t
	}
	first := p.base.Model.Foundation()
	from, to := first+1, first+1+p.cfg.Model.Layers
	stages = make([]float64, c.PP)
	stages[0] = sum(blocks[first:from])
	stages[c.PP-1] += sum(blocks[to:])
	if e := c.Encoder; e.Over == search.OverNone {
		stages[0] += sum(blocks[:first])
	} else if e.Over == search.OverFirst || e.Over == search.OverAll {
		if blocks, err = p.Space.Profile(search.Variant{TP: e.TP, Batch: c.Batch, Recompute: c.Recompute}); err != nil {
			return nil, 0, err
		}
		each := sum(blocks[:first]) / float64(e.Replicas(c))
		for s := range stages {
			if s == 0 || e.Over == search.OverAll {
				stages[s] += each
			}
		}
	}
	return stages, sum(blocks[from:to]) / float64(to-from), nil
}

// fewRanks is up to how many ranks the best candidates are simulated with all of them.
const fewRanks = 16

// weigh simulates the best candidates with all ranks, where these have different rates, or are few and some
// of the best share tokens: as many as are laid out, and on until the best is one of them.
func (p *Search) weigh(ctx context.Context, all []search.Candidate) error {
	share := slices.ContainsFunc(all[:min(len(all), p.Exact)], func(c search.Candidate) bool {
		return c.CP > 1
	})
	if p.Machine.Second == nil && (!share || p.Space.Devices > fewRanks) {
		return nil
	}
	whole := map[string]bool{}
	for i := range all {
		if all[i].Chunks > 1 { // simulated so already
			whole[all[i].String()] = true
		}
	}
	for n := 0; ; n++ {
		search.Rank(all)
		i := slices.IndexFunc(all, func(c search.Candidate) bool {
			return c.Why == "" && (!whole[c.String()] || n >= p.Exact)
		})
		if i < 0 || whole[all[i].String()] {
			return nil
		}
		c := &all[i]
		whole[c.String()] = true
		cfg, err := p.under(c)
		if err != nil {
			return err
		}
		sum, err := rehearsal.Simulate(ctx, cfg, rehearsal.Options{Machine: p.Machine})
		if err != nil {
			c.Why = err.Error()
			continue
		}
		c.Simulated = sum.Step
	}
}
