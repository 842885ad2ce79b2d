package planner

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/search"
)

// Plans of models with a vision encoder: closed forms choose among all of them, and the best are laid out and simulated
// as lfactor sim does with a plan of one's own, all ranks of them, since those of a stage do not do the same.

// newTower makes the encoder's part of the space of plans.
func (p *Search) newTower() *search.Tower {
	m := p.base.Model
	widths := m.Widths
	switch {
	case m.Vision != nil:
		widths = []int{m.Vision.Tower.Heads, m.Vision.Tower.Inter}
	case !m.Ahead():
		return nil
	}
	t := &search.Tower{Blocks: m.Foundation(), Cut: func(n int) ([]int, error) {
		return m.BalancedFrom(m.Foundation(), n, p.cfg.Run.Data.SeqLen)
	}}
	for tp := 1; tp <= p.Machine.Devices; tp++ {
		shared := !slices.ContainsFunc(widths, func(w int) bool { return w%tp != 0 })
		if p.divides(tp) && shared {
			t.TP = append(t.TP, tp)
		}
	}
	return t
}

// patches is plan.encoder.patches for a microbatch of so many sequences: what the run file says of its own
// microbatches, 0 if it leaves them to their tokens.
func (p *Search) patches(batch int) int {
	return (p.cfg.Run.Plan.Encoder.Patches*batch + p.batch - 1) / p.batch
}

// encoderSettings are what a candidate changes of the encoder.
func (p *Search) encoderSettings(c *search.Candidate) []string {
	if c.Encoder.Over == "" {
		return nil
	}
	e := c.Encoder
	if e.Over == search.OverNone {
		e.TP = 1
	}
	out := []string{"plan.encoder.over=" + e.Over, fmt.Sprintf("plan.encoder.tp=%d", e.TP),
		fmt.Sprintf("plan.encoder.ranks=%d", e.Ranks), fmt.Sprintf("plan.encoder.ahead=%d", e.Ahead),
		"plan.encoder.fill=true"}
	if n := p.patches(c.Batch); n > 0 {
		out = append(out, fmt.Sprintf("plan.encoder.patches=%d", n))
	}
	return out
}

// overMin is how many plans of each place of an encoder are simulated at least.
const overMin = 8

// spread puts some plans of each place of the encoder among the first n, which are simulated: closed forms
// know less of encoders than of pipelines.
func spread(all []search.Candidate, n int) {
	have := map[string]int{}
	rank := func(c *search.Candidate) int {
		if have[c.Encoder.Over]++; c.Why == "" && have[c.Encoder.Over] <= overMin {
			return 0
		}
		return 1
	}
	if len(all) <= n {
		return
	}
	ranks := make([]int, len(all))
	for i := range all {
		ranks[i] = rank(&all[i])
	}
	var first, rest []search.Candidate
	for i := range all {
		if ranks[i] == 0 {
			first = append(first, all[i])
		} else {
			rest = append(rest, all[i])
		}
	}
	copy(all, append(first, rest...))
}

// simulateBest simulates up to reranked candidates of those that closed forms hold to fit, puts them in
// front and returns how many they are. Where a simulation needs more memory than a closed form says, others
// of that kind are passed over by as much.
func (p *Search) simulateBest(ctx context.Context, all []search.Candidate) (int, error) {
	spread(all, Reranked)
	var tried, rest []search.Candidate
	over := map[string]float64{}
	for _, c := range all {
		kind := c.Schedule + c.Recompute + c.Encoder.Over
		if c.Why == "" && p.Space.Limit > 0 && float64(c.Memory)*over[kind] > float64(p.Space.Limit) {
			c.Why = "memory"
		}
		if c.Why != "" || len(tried) == Reranked {
			rest = append(rest, c)
			continue
		}
		claimed := c.Memory
		if err := p.SimulateComposed(&c); err != nil {
			return 0, err
		}
		if c.Why == "memory" {
			over[kind] = max(over[kind], float64(c.Memory)/float64(claimed))
		}
		tried = append(tried, c)
		if ctx.Err() != nil {
			return 0, exit.With(errors.New("interrupted"), exit.Interrupted)
		}
	}
	copy(all[copy(all, tried):], rest)
	return len(tried), nil
}

// wholeRanks bounds the ranks of a simulation of which replicas may be left out: their tensor-parallel
// groups and pipelines do the same.
const wholeRanks = 64

// SimulateComposed lays a candidate out and runs it in virtual time. Of many replicas of the decoder some
// are left out, as they do the same; what their number means for the exchange of gradients and for shares of
// the optimizer's state is told by closed forms.
func (p *Search) SimulateComposed(c *search.Candidate) error {
	p.weighLayers(c)
	small := *c
	for d := 1; d <= c.DP; d++ {
		if c.DP%d == 0 && (c.TP*c.PP+c.Encoder.Ranks)*d <= p.Whole || d == 1 {
			small.DP = d
		}
	}
	cfg, err := p.under(&small)
	if err != nil {
		c.Why = err.Error()
		return nil
	}
	j, err := p.job(cfg)
	if err != nil {
		return err
	}
	j.Memory = 0
	l, err := layout.New(j)
	if err != nil {
		c.Why = err.Error()
		return nil
	}
	price := rehearsal.Prices(p.fewer(c.DP / small.DP))
	price.Sends = nil
	run := core.RunLayout{First: 1, Last: 2, LossScale: core.LossScale{Scale: 1}, LR: func(int64) float64 {
		return 0
	}}
	res := sim.New(rehearsal.Layout(l, run), price, sim.Options{Whole: true, Fold: true}).Run()
	if res.Failed != "" || res.Stall != nil {
		return fmt.Errorf("plan %v: the simulated run ended badly: %s", c, rehearsal.Why(res))
	}
	late := 0.0
	for r := range l.Ranks {
		own := p.shares(l, r)
		before, after := p.shared(&small, own), p.shared(c, own)
		res.Peak[r] += after.bytes - before.bytes
		late = max(late, after.seconds-before.seconds)
	}
	res.Steps[0] = res.Steps[len(res.Steps)-1]
	res.Steps[0].Time += 1e9 * late
	p.take(c, res)
	if c.Why == "memory" && c.Encoder.Over != search.OverNone && c.Encoder.Ahead == 0 {
		tight := *c
		tight.Encoder.Ahead, tight.Why, tight.Simulated = 1, "", 0
		if err := p.SimulateComposed(&tight); err != nil {
			return err
		}
		if tight.Why == "" {
			*c = tight
		}
	}
	return nil
}

// shares are what a rank trains of the decoder and of the encoder.
func (p *Search) shares(l *layout.Layout, rank int) (out [2]search.Weights) {
	for _, x := range l.Ranks[rank].Params {
		out[x.Side].Params += int64(tensor.Len(x.Local))
		out[x.Side].Tensors++
	}
	return
}

// sharing is what of a rank's memory and of the update depends on the number of replicas.
type sharing struct {
	bytes   int64
	seconds float64
}

// shared sums the bytes and the seconds of update of both sides' weights where they share devices.
// The encoder's weights are sharded over its own mesh, which may be another than the decoder's.
func (p *Search) shared(c *search.Candidate, own [2]search.Weights) (out sharing) {
	for side, x := range own {
		if x.Params == 0 {
			continue
		}
		m := *c
		if side != layout.DecoderSide {
			m.DP, m.TP = c.DP*c.Encoder.Replicas(c), c.Encoder.TP
		}
		out.bytes += p.Space.Base(&m, x)
		out.seconds += p.Space.Update(&m, x, 0)
	}
	return
}

// under reads the run file again under a candidate, as training will.
func (p *Search) under(c *search.Candidate, more ...string) (*configs.Config, error) {
	cfg, err := p.config(append(p.Settings(c), more...)...)
	if err != nil {
		return nil, err
	}
	return cfg, setup.Vocabulary(cfg)
}
