package planner

import (
	"context"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/actors/rehearsal"
	"github.com/lfactor/lfactor/topology"
	"github.com/lfactor/lfactor/topology/search"
)

// On a machine with two kinds of devices a stage runs as fast as its slowest rank. Stages get layers by
// their rates, and plans are ranked by a simulation of all ranks, each with the rates of its own device.

// weighed are the layers of each stage of a candidate, "" where all have as many.
func (p *Search) weighed(c *search.Candidate) string {
	layers := p.cfg.Model.Layers
	if p.Machine.Second == nil || c.PP < 2 || c.Loops > 1 || p.Space.Tower != nil || layers < c.PP {
		return ""
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
		n[s] = 1
		left--
	}
	for ; left > 0; left-- { // to the stage that is done first with one more
		best := 0
		for s := range n {
			if float64(n[s]+1)/rates[s] < float64(n[best]+1)/rates[best] {
				best = s
			}
		}
		n[best]++
	}
	text := make([]string, len(n))
	for s, k := range n {
		text[s] = strconv.Itoa(k)
	}
	return "[" + strings.Join(text, ",") + "]"
}

// weigh simulates the best candidates with all ranks, where these have different rates.
func (p *Search) weigh(ctx context.Context, all []search.Candidate) error {
	if p.Machine.Second == nil {
		return nil
	}
	for i, n := 0, 0; i < len(all) && n < p.Exact; i++ {
		c := &all[i]
		if c.Why != "" {
			continue
		}
		n++
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
	return nil
}
