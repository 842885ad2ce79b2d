package run

import (
	"context"
	"math"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/stages/optim"
)

// Evaluation is the loss on validation data.
type Evaluation struct {
	Loss       float64 `json:"loss"`                 // nats a token; of a number, for models of diffusion
	Perplexity float64 `json:"perplexity,omitempty"` // 0 for models of diffusion, which have none
	From       string  `json:"from"`                 // where the weights come from
	Batches    int     `json:"batches"`
	// of models of diffusion where it was asked for, by time of the noise levels
	Levels []LevelLoss `json:"levels,omitempty"`
}

// LevelLoss is the loss of noise levels whose time lies in [From, To), as shares of a thousand steps.
// Levels that training draws none of have none.
type LevelLoss struct {
	From float64 `json:"from"`
	To   float64 `json:"to"`
	Loss float64 `json:"loss"`
}

// Question is what Evaluate is asked beside the loss.
type Question struct {
	Average bool // of the average of weights that the run keeps
	Levels  int  // of parts of the noise levels, so many; 0 for none
}

// Evaluate computes the loss of a run's newest checkpoint, or of the weights that it starts from, on its
// validation data, in one process.
func Evaluate(ctx context.Context, cfg *configs.Config, q Question) (*Evaluation, error) {
	r, err := asked(cfg, q)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	out := &Evaluation{From: r.start.from, Batches: cfg.Run.Train.EvalSteps}
	if out.Loss, err = r.validate(ctx); err != nil {
		return nil, err
	}
	if out.Levels, err = r.byLevel(ctx, q); err != nil {
		return nil, err
	}
	if r.job.Model.Task().Perplexity && r.data.answers == nil {
		out.Perplexity = math.Exp(out.Loss)
	}
	return out, nil
}

// asked opens a run for questions.
func asked(cfg *configs.Config, q Question) (*Run, error) {
	r, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	if q.Average || r.start.opened != nil && optim.Averages(cfg.Run.Optimizer.Kind) {
		err = r.start.average(cfg)
	}
	if err == nil && !r.data.validates() {
		err = cfg.Fault("data.valid", "there is no validation data", "name files, or give data.split a second share")
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// validate computes the loss on validation data.
func (r *Run) validate(ctx context.Context) (loss float64, err error) {
	o, closeAll, err := r.options(0)
	if err != nil {
		return 0, err
	}
	defer closeAll()
	o.Save, o.Begin, o.Commit = nil, nil, nil
	o.Coord.EvalOnly, o.Coord.EvalEvery, o.Coord.SaveAtEnd = true, 0, false
	o.Stop, loss = ctx.Done(), math.NaN()
	o.Observe = func(m actors.Message) {
		if m.Text == core.TopicEval {
			loss = core.EvalLoss(m.Values)
		}
	}
	err = host.Run(r.layout, o)
	return loss, err
}

// byLevel computes the loss for each of q.Levels parts of the noise levels, by their time: each reads the same samples
// from their beginning.
func (r *Run) byLevel(ctx context.Context, q Question) (out []LevelLoss, err error) {
	if q.Levels == 0 {
		return nil, nil
	}
	if !r.job.Model.Task().Levels {
		return nil, exit.Usagef("%s has no noise levels: leave --levels out", r.cfg.Model.ModelType)
	}
	const steps = 1000
	for i := range q.Levels {
		l := LevelLoss{From: float64(i) / float64(q.Levels), To: float64(i+1) / float64(q.Levels)}
		from, to := float32(steps*l.From), float32(steps*l.To)
		if i == q.Levels-1 {
			to = steps + 1 // the noisiest level too
		}
		any, err := r.between(ctx, q, from, to, &l.Loss)
		if err != nil {
			return nil, err
		}
		if any {
			out = append(out, l)
		}
	}
	return out, nil
}

// between computes the loss of noise levels whose time lies between two, where training draws any.
func (r *Run) between(ctx context.Context, q Question, from, to float32, loss *float64) (any bool, err error) {
	one, err := asked(r.cfg, q)
	if err != nil {
		return false, err
	}
	defer one.Close()
	p := &one.job.Model.Denoiser.Process
	if p.To > 0 {
		from, to = max(from, p.From), min(to, p.To)
	}
	p.From, p.To = from, to
	if from >= to || !p.Reaches() {
		return false, nil
	}
	*loss, err = one.validate(ctx)
	return true, err
}
