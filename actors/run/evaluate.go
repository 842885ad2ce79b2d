package run

import (
	"context"
	"math"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
)

// Evaluation is the loss on validation data.
type Evaluation struct {
	Loss       float64 `json:"loss"`                 // nats a token; of a number, for models of diffusion
	Perplexity float64 `json:"perplexity,omitempty"` // 0 for models of diffusion, which have none
	From       string  `json:"from"`                 // where the weights come from
	Batches    int     `json:"batches"`
}

// Evaluate computes the loss of a run's newest checkpoint, or of the weights that it starts from, on its
// validation data, in one process.
func Evaluate(ctx context.Context, cfg *configs.Config, average bool) (*Evaluation, error) {
	r, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if average {
		if err := r.start.average(cfg); err != nil {
			return nil, err
		}
	}
	if !r.data.validates() {
		return nil, cfg.Fault("data.valid", "there is no validation data",
			"name files, or give data.split a second share")
	}
	o, closeAll, err := r.options(0)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	o.Save, o.Begin, o.Commit = nil, nil, nil
	o.Coord.EvalOnly, o.Coord.EvalEvery, o.Coord.SaveAtEnd = true, 0, false
	o.Stop = ctx.Done()
	out := &Evaluation{Loss: math.NaN(), From: r.start.from, Batches: cfg.Run.Train.EvalSteps}
	o.Observe = func(m actors.Message) {
		if m.Text == core.TopicEval {
			out.Loss = core.EvalLoss(m.Values)
		}
	}
	if err := host.Run(r.layout, o); err != nil {
		return nil, err
	}
	if !cfg.Model.Denoises() && r.data.answers == nil {
		out.Perplexity = math.Exp(out.Loss)
	}
	return out, nil
}
