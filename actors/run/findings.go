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

var products = []string{"forward", "dx", "dw"}

// found takes in what a step has shown of products of few bits, and tells of weights that change sides.
func (p *reporter) found(m actors.Message) {
	p.findings, p.findingsAt = core.Findings(m.Values), m.Step
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
			fell = append(fell, fmt.Sprintf("%s (error %.3g of %s, %.2g %% became 0, %.2g %% cut)", x.Weight,
				x.Error,
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

// some are the first three of a list, and how many more there are.
func some(of []string) string {
	if n := len(of) - 3; n > 0 {
		return fmt.Sprintf("%s and %d more (log.jsonl names them)", strings.Join(of[:3], ", "), n)
	}
	return strings.Join(of, ", ")
}

func (p *reporter) product(f core.Finding) ProductError {
	return ProductError{Weight: strings.TrimSuffix(p.r.layout.Order[f.Param], grad.ChoiceSuffix),
		Error:   f.Error,
		Product: products[f.Product], Flushed: f.Flushed, Cut: f.Cut, Stay: int(f.Stay)}
}

func (p *reporter) productErrors() (out []ProductError) {
	for _, f := range p.findings {
		out = append(out, p.product(f))
	}
	return out
}
