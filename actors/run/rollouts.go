package run

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/actors/trained"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
)

// rollouts draws the answers that a run learns from: a step's prompts go to the sampler, which has the
// weights behind the step before; its answers get rewards, groups of them advantages, and become the step's
// microbatches. Ranks wait for those, so that nobody changes weights while they are copied.
type rollouts struct {
	d      *data
	loss   *objective.Loss
	reward reward.Func
	ref    *trained.Reference // nil where the loss compares with none
	stops  []int32
	ctx    context.Context // ends when nobody waits any more
	cancel context.CancelFunc

	mu      sync.Mutex
	done    int64         // the last step whose update is applied
	moved   chan struct{} // closed when done moves on
	ranks   []*host.Rank
	fill    func(*grad.Param, family.Region, []float32) error // of weights that no rank has; nil in a run
	engine  *sample.Engine
	backend kernels.Backend
	current int64 // the step of drawn
	drawn   []*rollout
	log     *os.File
}

// rollout is an answer that was drawn.
type rollout struct {
	Step      int64      `json:"step"`
	Sample    int64      `json:"sample"`  // the prompt's place in the global order
	Index     int        `json:"index"`   // of the answer among those of its group
	Version   int64      `json:"version"` // updates behind the weights that drew it
	Seed      uint64     `json:"seed"`
	Prompt    []int32    `json:"prompt"`
	Answer    []int32    `json:"answer"`
	LogProbs  []float32  `json:"log_probs"`
	End       sample.End `json:"end"`
	Text      string     `json:"text"`
	Reward    *float64   `json:"reward"` // null where there is none
	Fault     string     `json:"fault,omitempty"`
	Advantage float64    `json:"advantage"`
	// Record is the prompt's record of the data, and Asked its text: what the reward saw beside Text.
	Record map[string]json.RawMessage `json:"record"`
	Asked  string                     `json:"asked"`
}

// RolloutsName is the file of log.dir with the answers that a run drew, one a line.
const RolloutsName = "rollouts.jsonl"

// openRollouts readies the drawing of answers.
func (d *data) openRollouts(l *objective.Loss) (err error) {
	c := d.r.cfg
	r := &rollouts{d: d, loss: l, moved: make(chan struct{}), done: d.r.start.first - 1}
	if r.reward, err = reward.Of(&c.Run.Reward); err != nil {
		return c.Fault("reward.kind", err.Error(), "")
	}
	if fit.Compares(c) {
		if r.ref, err = d.r.reference(); err != nil {
			return err
		}
	}
	for _, id := range c.Model.EOS {
		r.stops = append(r.stops, int32(id))
	}
	if id, ok := d.r.tok.TokenID(d.r.conf.EOS); ok {
		r.stops = append(r.stops, id)
	}
	if len(r.stops) == 0 {
		return c.Fault("data.tokenizer", "neither the tokenizer nor the model says which token ends an "+
			"answer",
			"give model.overrides.eos_token_id")
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go func() { // whoever waits for answers lets go when the run does
		<-d.left
		r.cancel()
	}()
	d.rollouts = r
	return nil
}

// promptEncoder is the encoder of prompts.
func (d *data) promptEncoder() (dataset.SampleEncoder, error) {
	c := &d.r.cfg.Run
	e := &format.PromptEncoder{Text: d.r.encoder(), Most: c.Data.SeqLen - c.Rollout.Max}
	if d.r.conf.ChatTemplate == "" && c.Data.Template == "" {
		return e, nil
	}
	t, err := setup.Template(d.r.cfg, d.r.tok, d.r.conf)
	if err != nil {
		return nil, err
	}
	e.Print = token.NewChat(d.r.tok, t, token.ChatOptions{}).Fingerprint()
	e.Write = func(turns []dataset.Message) (string, error) { return t.Render(turns, nil, true, nil) }
	return e, nil
}

// sees takes the ranks whose parameters answers are drawn with.
func (d *data) sees(ranks []*host.Rank) {
	if r := d.rollouts; r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.ranks = ranks
	}
}

// trained says that a step's update is applied on all ranks.
func (r *rollouts) trained(step int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if step > r.done {
		r.done = step
		close(r.moved)
		r.moved = make(chan struct{})
	}
}

// await waits until the update before a step is applied.
func (r *rollouts) await(step int64) error {
	for {
		r.mu.Lock()
		done, moved := r.done, r.moved
		r.mu.Unlock()
		if done >= step-1 {
			return nil
		}
		select {
		case <-moved:
		case <-r.ctx.Done():
			return errLeft
		}
	}
}

// close gives the sampler back.
func (r *rollouts) close() {
	r.cancel()
	if r.engine != nil {
		r.engine.Close()
		kernels.Close(r.backend)
	}
	if r.ref != nil {
		r.ref.Close()
	}
	if r.log != nil {
		_ = r.log.Close() // each step was synced by its write
	}
}

// open makes the sampler, whose weights come from the ranks.
func (r *rollouts) open() error {
	if r.engine != nil {
		return nil
	}
	c := r.d.r.cfg
	b, err := kernels.Open(kernels.CPU, kernels.Options{Threads: c.Run.Plan.Threads})
	if err != nil {
		return err
	}
	m, err := family.Build(c.Model, c.Run.Data.SeqLen)
	if err != nil {
		return err
	}
	m.DropMTP()
	fill := r.fill
	if fill == nil { // the ranks' weights come with each step
		fill = func(*grad.Param, family.Region, []float32) error { return nil }
	}
	g, err := sample.New(m, fit.Lora(c), layout.Precisions[c.Run.Train.Precision], b,
		tensor.NewPool("sampler", 0), fill)
	if err != nil {
		return err
	}
	pages := c.Run.Rollout.Pages
	if pages == 0 {
		pages = min(4096, c.Run.Train.GlobalBatch*((c.Run.Data.SeqLen+sample.PageRows-1)/sample.PageRows))
	}
	if least := (c.Run.Data.SeqLen + sample.PageRows - 1) / sample.PageRows; pages < least {
		return c.Fault("rollout.pages", fmt.Sprintf("%d pages have no room for one answer of %d tokens",
			pages,
			c.Run.Data.SeqLen), fmt.Sprintf("take %d or more", least))
	}
	r.backend = b
	if r.engine, err = sample.NewEngine(g, sample.EngineOptions{Pages: pages,
		Running: c.Run.Train.GlobalBatch,
		Rows:    max(256, c.Run.Train.GlobalBatch)}); err != nil {
		return err
	}
	if r.fill != nil {
		return nil // nothing is drawn that a log should have
	}
	r.log, err = os.OpenFile(filepath.Join(c.Run.Log.Dir, RolloutsName),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	return err
}

// take copies the ranks' parameters to the sampler, each region of each from the rank that saves it.
func (r *rollouts) take() error {
	for _, rank := range r.ranks {
		for _, p := range rank.Parts() {
			if p.Kind != "param" {
				continue
			}
			box := p.Region.Intervals(p.Param)
			n := 1
			for _, x := range box {
				n *= x[1] - x[0]
			}
			if n == 0 {
				continue // padding
			}
			rows := p.Tensor.RowSlice(p.Row, p.Row+box[0][1]-box[0][0])
			v := make([]float32, n)
			tensor.Widen(rows.DType, rows.Bytes(), v)
			rows.Release()
			if err := r.engine.Generator().Put(p.Param.Name, box, v); err != nil {
				return err
			}
		}
	}
	r.engine.Flush()
	return nil
}

// batches gives replica dp its share of a step, for which the first who asks draws the answers.
func (r *rollouts) batches(step int64, dp int, prompts []dataset.Batch) ([]host.Microbatch, error) {
	if r.current != step {
		drawn, err := r.draw(step, prompts)
		if err != nil {
			return nil, err
		}
		r.current, r.drawn = step, drawn
	}
	return r.lay(dp)
}

// draw gives a step's answers with their rewards and advantages.
func (r *rollouts) draw(step int64, prompts []dataset.Batch) ([]*rollout, error) {
	if err := r.open(); err != nil {
		return nil, err
	}
	if err := r.take(); err != nil {
		return nil, err
	}
	all := r.ask(step, prompts)
	if err := r.answered(all); err != nil {
		return nil, err
	}
	if err := r.judge(all); err != nil {
		return nil, err
	}
	return all, r.write(step, all)
}

// ask makes a group of requests of each prompt.
func (r *rollouts) ask(step int64, prompts []dataset.Batch) (all []*rollout) {
	c := &r.d.r.cfg.Run
	for i := range prompts {
		b := &prompts[i]
		for _, m := range b.Media {
			s := m.Spans[0]
			ids := b.Tokens[s.From:s.To]
			var record map[string]json.RawMessage
			if err := json.Unmarshal(m.Bytes, &record); err != nil {
				panic(fmt.Sprintf("run: a record that was read before: %v", err))
			}
			id := b.Samples()[0]
			for k := range c.Rollout.Group {
				all = append(all, &rollout{Step: step, Sample: id, Index: k, Version: step - 1, Prompt: ids,
					Seed: dataset.Draw(uint64(c.Train.Seed), 1, id, step, 0), Record: record})
			}
		}
	}
	return all
}

// answered has the sampler draw.
func (r *rollouts) answered(all []*rollout) error {
	for _, a := range all {
		q := &sample.Request{Prompt: a.Prompt, Sample: a.Index, Params: sample.Params{Temperature: 1,
			Max: r.d.r.cfg.Run.Rollout.Max, Seed: a.Seed, Stop: r.stops}}
		q.Emit = func(t sample.Token) bool {
			a.Answer, a.LogProbs = append(a.Answer, t.ID), append(a.LogProbs, t.LogProb)
			return true
		}
		q.Done = func(why sample.End) { a.End = why }
		if err := r.engine.Submit(q); err != nil {
			return fmt.Errorf("drawing answers: %w", err)
		}
	}
	for r.engine.Busy() {
		if r.ctx.Err() != nil {
			return errLeft
		}
		if err := r.engine.Step(); err != nil {
			return fmt.Errorf("drawing answers: %w", err)
		}
	}
	tok := r.d.r.tok
	for _, a := range all {
		ids := a.Answer
		if a.End == sample.EndStop {
			ids = ids[:len(ids)-1]
		}
		a.Text, a.Asked = tok.Decode(ids, true), tok.Decode(a.Prompt, false)
	}
	return nil
}

// judge gives answers their rewards, and groups their advantages. An answer without a reward is not learnt
// from, and counts in no mean; it is set aside like a bad sample.
func (r *rollouts) judge(all []*rollout) error {
	c := &r.d.r.cfg.Run
	asked := make([]reward.Answer, len(all))
	for i, a := range all {
		asked[i] = reward.Answer{Prompt: a.Asked, Text: a.Text, Record: a.Record}
	}
	results := reward.Each(r.ctx, r.reward, &c.Reward, asked)
	if r.ctx.Err() != nil {
		return errLeft
	}
	for i, x := range results {
		a := all[i]
		if x.Err == nil {
			a.Reward = &x.Value
			continue
		}
		a.Fault = x.Err.Error()
		if err := r.d.setAside(a); err != nil {
			return err
		}
	}
	var groups [][]float64
	var of [][]*rollout
	for i := 0; i < len(all); i += c.Rollout.Group {
		var values []float64
		var answers []*rollout
		for _, a := range all[i : i+c.Rollout.Group] {
			if a.Reward != nil {
				values, answers = append(values, *a.Reward), append(answers, a)
			}
		}
		groups, of = append(groups, values), append(of, answers)
	}
	for k, g := range r.loss.Policy.Advantages(groups) {
		for i, x := range g {
			of[k][i].Advantage = x
		}
	}
	return nil
}

// write appends a step's answers to the log, and says how they are.
func (r *rollouts) write(step int64, all []*rollout) error {
	var sum, tokens float64
	signal, n, groups := 0, 0, 0
	group := r.d.r.cfg.Run.Rollout.Group
	for i, a := range all {
		line, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if _, err := r.log.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("the log of drawn answers: %w", err)
		}
		tokens += float64(len(a.Answer))
		if a.Reward != nil {
			sum, n = sum+*a.Reward, n+1
		}
		if i%group == 0 {
			groups++
			for _, b := range all[i : i+group] {
				if b.Advantage != 0 {
					signal++
					break
				}
			}
		}
	}
	s := r.engine.Stats()
	r.d.r.report.say("answers of step %d: reward %.3f, %.1f tokens, signal in %d of %d groups, prompts "+
		"shared %d of %d",
		step, sum/max(1, float64(n)), tokens/float64(len(all)), signal, groups, s.Shared, s.Shared+s.Prompt)
	return nil
}

// setAside enters an answer without a reward in the quarantine, which ends the run when it is full.
func (d *data) setAside(a *rollout) error {
	c := &d.r.cfg.Run
	bad := dataset.Bad{Source: RolloutsName, Document: a.Step*int64(c.Rollout.Group) + int64(a.Index),
		Place: dataset.Place{File: RolloutsName, Offset: a.Step},
		Reason: fmt.Sprintf("answer %d to sample %d in step %d "+
			"has no reward: %s", a.Index, a.Sample, a.Step, a.Fault)}
	bad.Document = bad.Document<<32 | a.Sample&0xffffffff
	if err := d.bad.Add(bad); err != nil {
		return err
	}
	if n := int64(len(d.bad.List())); n > int64(c.Data.Quarantine) {
		return &dataset.BudgetError{Budget: dataset.Budget{Count: int64(c.Data.Quarantine)}, Bad: n,
			Read: n, Last: bad}
	}
	return nil
}
