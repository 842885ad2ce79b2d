package run

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/run/record"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/trained"
)

// Evaluation is the loss on validation data.
type Evaluation struct {
	Loss       float64 `json:"loss"`                 // nats a token; of a number, for models of diffusion
	Perplexity float64 `json:"perplexity,omitempty"` // 0 for models of diffusion, which have none
	From       string  `json:"from"`                 // where the weights come from
	Batches    int     `json:"batches"`
	// of named validation sets
	Sets []SetLoss `json:"sets,omitempty"`
	// to train.eval_prompts
	Answers []trained.Shown `json:"answers,omitempty"`
	// of models of diffusion where it was asked for, by time of the noise levels
	Levels []LevelLoss `json:"levels,omitempty"`
}

// SetLoss is the loss on a validation set.
type SetLoss struct {
	Name string  `json:"name"`
	Loss float64 `json:"loss"`
}

// setLosses reads the losses of named validation sets from a TopicEval report, in the order of data.valid; nil where
// sets have no names.
func (r *Run) setLosses(v []float64) (out []SetLoss) {
	for i, name := range configs.Sets(r.cfg.Run.Data.Valid) {
		if name != "" {
			out = append(out, SetLoss{name, v[min(i+1, len(v)-1)]})
		}
	}
	return out
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
	values, err := r.validate(ctx)
	if err != nil {
		return nil, err
	}
	out.Loss, out.Sets = core.EvalLoss(values), r.setLosses(values)
	if out.Answers, err = r.data.takeShown(r.start.first - 1); err != nil {
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

// validate computes the losses on validation data, as a TopicEval report has them.
func (r *Run) validate(ctx context.Context) (values []float64, err error) {
	o, closeAll, err := r.options(0)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	o.Save, o.Begin, o.Commit = nil, nil, nil
	o.Coord.EvalOnly, o.Coord.EvalEvery, o.Coord.SaveAtEnd = true, 0, false
	o.Stop, values = ctx.Done(), []float64{math.NaN()}
	o.Observe = func(m actors.Message) {
		if m.Text == core.TopicEval {
			values = m.Values
		}
	}
	err = host.Run(r.layout, o)
	return values, err
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
	v, err := one.validate(ctx)
	if err == nil {
		*loss = core.EvalLoss(v)
	}
	return true, err
}

// evaluates brings a loader to batch n of an evaluation: each sees the same batches.
func evaluates(l *dataset.Loader, n int64) error {
	if n == 0 || l.Position().Step > n {
		if err := l.Seek(dataset.Position{}); err != nil {
			return err
		}
	}
	for l.Position().Step < n { // batches that are kept were not asked for
		if _, err := l.Step(l.Position().Step); err != nil {
			return err
		}
	}
	return nil
}

// evaluated tells of an evaluation within training.
func (p *reporter) evaluated(m actors.Message) {
	loss, sets, words := core.EvalLoss(m.Values), p.r.setLosses(m.Values), ""
	p.evals = append(p.evals, record.Point{X: float64(m.Step), Y: loss})
	p.scalar("eval/loss", m.Step, loss)
	fields := []zap.Field{zap.Int64("step", m.Step), zap.Float64("loss", loss)}
	for _, s := range sets {
		words += fmt.Sprintf("  %s %.4f", s.Name, s.Loss)
		p.scalar("eval/"+s.Name+"/loss", m.Step, s.Loss)
	}
	if sets != nil {
		fields = append(fields, zap.Any("sets", sets))
	}
	p.say("eval  step %d  loss %.4f%s%s", m.Step, loss, p.perplexity(loss), words)
	p.log.Info("eval", fields...)
	answers, err := p.r.data.takeShown(m.Step)
	if err != nil {
		p.say("! train.eval_prompts: %v", err)
	}
	for _, a := range answers {
		made := fmt.Sprintf("%q", strings.TrimSpace(a.Answer))
		if a.File != "" {
			made = strings.TrimPrefix(made+" in ", `"" in `) + filepath.Join(p.dir, ShownDir, a.File)
		}
		p.say("eval  %q → %s", a.Prompt, made)
		p.log.Info("answer", zap.Int64("step", m.Step), zap.String("prompt", a.Prompt), zap.String("answer", a.Answer),
			zap.String("file", a.File))
	}
}

// evaluations reads the losses of evaluations before a step from the log.
func evaluations(log string, first int64) (out []record.Point) {
	f, err := os.Open(log)
	if err != nil {
		return nil
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var e struct {
			Msg  string   `json:"msg"`
			Step int64    `json:"step"`
			Loss *float64 `json:"loss"`
		}
		if json.Unmarshal(s.Bytes(), &e) != nil || e.Msg != "eval" || e.Loss == nil || e.Step >= first {
			continue
		}
		for len(out) > 0 && out[len(out)-1].X >= float64(e.Step) { // taken again since
			out = out[:len(out)-1]
		}
		out = append(out, record.Point{X: float64(e.Step), Y: *e.Loss})
	}
	return out
}
