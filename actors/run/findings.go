package run

import (
	"fmt"
	"strings"

	"go.uber.org/zap"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/grad"
)

// ProductError is what a line of metrics.jsonl says of a weight whose products have operands of few bits.
type ProductError struct {
	Weight  string  `json:"weight"`
	Error   float64 `json:"error"`          // relative, of the worst of its three products
	Product string  `json:"product"`        // that is it: forward, dx or dw
	Flushed float64 `json:"flushed"`        // share of numbers that became 0
	Cut     float64 `json:"cut"`            // share that was beyond the greatest
	Stay    int     `json:"stay,omitempty"` // steps for which it is multiplied as it is
}

// GreatestScore is what a line of metrics.jsonl says of a layer's attention: its greatest score before the softmax.
type GreatestScore struct {
	Attention string  `json:"attention"`
	Head      int     `json:"head"`
	Score     float64 `json:"score"`
}

var products = []string{"forward", "dx", "dw"}

// found takes in what a step has shown of products of few bits, and tells of weights that change sides.
func (p *reporter) found(m actors.Message) {
	p.findings, p.scores, p.findingsAt = nil, nil, m.Step
	for _, f := range core.Findings(m.Values) {
		if of, ok := strings.CutSuffix(p.r.layout.Order[f.Param], grad.PeakSuffix); ok {
			p.scores = append(p.scores, GreatestScore{Attention: of, Head: f.Product, Score: f.Error})
		} else {
			p.findings = append(p.findings, f)
		}
	}
	p.shrunk(m.Step)
	own := p.r.cfg.Run.Train.Precision
	var fell, back []string
	for _, f := range p.findings {
		if !f.Changed {
			continue
		}
		x := p.product(f)
		p.log.Info("precision of products", zap.Int64("step", m.Step), zap.String("weight", x.Weight),
			zap.Bool("low", f.Stay == 0), zap.Float64("error", x.Error), zap.String("product", x.Product),
			zap.Float64("flushed", x.Flushed), zap.Float64("cut", x.Cut), zap.Float64("times", f.Falls))
		if f.Stay == 0 {
			back = append(back, x.Weight)
		} else {
			fell = append(fell, fmt.Sprintf("%s (error %.3g of %s, %.2g %% became 0, %.2g %% cut)", x.Weight, x.Error,
				x.Product, 100*x.Flushed, 100*x.Cut))
		}
	}
	if len(fell) > 0 {
		p.say("step %d: multiplied in %s from now on: %s", m.Step, own, some(fell))
	}
	if len(back) > 0 {
		p.say("step %d: multiplied in %s again: %s", m.Step, p.r.cfg.Run.Train.LowPrecision, some(back))
	}
}

// shrunk tells of the first step in which scores were above their limit, and of the first behind that without one.
func (p *reporter) shrunk(step int64) {
	limit := p.r.cfg.Run.Optimizer.QKClip.Limit
	if limit == 0 || len(p.scores) == 0 {
		return
	}
	var over []string
	for _, s := range p.scores {
		if s.Score > limit {
			over = append(over, fmt.Sprintf("%s (%.4g in head %d)", s.Attention, s.Score, s.Head))
		}
	}
	switch {
	case len(over) > 0 && !p.shrinks:
		p.say("step %d: scores of attention above %g, queries and keys shrink: %s", step, limit, some(over))
	case len(over) == 0 && p.shrinks:
		p.say("step %d: no score of attention is above %g any more", step, limit)
	}
	p.shrinks = len(over) > 0
}

// some are the first three of a list, and how many more there are.
func some(of []string) string {
	if n := len(of) - 3; n > 0 {
		return fmt.Sprintf("%s and %d more (log.jsonl names them)", strings.Join(of[:3], ", "), n)
	}
	return strings.Join(of, ", ")
}

func (p *reporter) product(f core.Finding) ProductError {
	return ProductError{Weight: strings.TrimSuffix(p.r.layout.Order[f.Param], grad.ChoiceSuffix), Error: f.Error,
		Product: products[f.Product], Flushed: f.Flushed, Cut: f.Cut, Stay: int(f.Stay)}
}

func (p *reporter) productErrors() (out []ProductError) {
	for _, f := range p.findings {
		out = append(out, p.product(f))
	}
	return out
}
