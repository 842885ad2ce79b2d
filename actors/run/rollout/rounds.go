package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/pool"
	"github.com/lfactor/lfactor/actors/rounds"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/sample"
)

// round is the answers of a batch of prompts.
type round struct {
	number  int64
	answers []*Answer // groups one behind the other
}

// roundsKept is how many rounds behind the newest are kept, for a run that goes back.
const roundsKept = 40

// begin readies the desk: at its beginning, or where a checkpoint was made, with the answers that were drawn
// before and not trained on.
func (r *Source) begin() error {
	c, first := &r.Cfg.Run, r.First
	groups := c.Train.GlobalBatch / c.Rollout.Group
	hold := groups
	if n := c.Rollout.Samplers; n > 1 { // less than its share, so that those that are faster do more
		hold = max(1, (groups+2*n-1)/(2*n))
	}
	last := r.Plan.Round(int64(c.Train.Steps)) + 1
	r.desk = rounds.NewDesk(r.Plan, groups, hold, last)
	r.judged = r.Plan.Round(first)
	if first == 1 {
		return nil
	}
	if err := r.resume(); err != nil {
		return err
	}
	now := r.Plan.Round(first)
	published := r.Plan.Round(first-1) + 1
	if now < published && r.round[now] == nil {
		return fmt.Errorf("the checkpoint has no answers of the steps %d to %d, which step %d goes on with",
			r.Plan.First(now), r.Plan.First(now+1)-1, first)
	}
	r.published = published
	r.desk.Resume(now, published, func(k int64) bool { return r.round[k] != nil })
	return nil
}

// Batches gives replica dp its share of a step, for which the first who asks publishes its weights. The
// caller has read the step's prompts, and holds the lock of reading.
func (r *Source) Batches(step int64, dp int) ([]family.Microbatch, error) {
	n := r.Plan.Round(step)
	if err := r.tryEnvironment(n); err != nil {
		return nil, err
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	if step == r.Plan.First(n) {
		if err := r.publish(n); err != nil {
			return nil, err
		}
	}
	var x *round
	if err := r.wait(r.left, func() bool { x = r.round[n]; return r.judged > n }); err != nil {
		return nil, err
	}
	if x == nil {
		return nil, fmt.Errorf("the answers of step %d are kept no longer", step)
	}
	return r.lay(step, dp, x)
}

// wait waits for something at the table, for as long as somebody does.
func (r *Source) wait(end context.Context, there func() bool) error {
	for {
		r.table.Lock()
		over, failed, changed := there(), r.failed, r.changed
		r.table.Unlock()
		switch {
		case failed != nil:
			return failed
		case over:
			return nil
		}
		select {
		case <-changed:
		case <-end.Done():
			return ErrLeft
		}
	}
}

// change wakes whoever waits. The caller holds the table.
func (r *Source) change() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// publish gives the weights that the ranks have to the samplers, with the prompts of the rounds that they
// begin. What was published before a run went back has been drawn, and is not drawn again.
func (r *Source) publish(n int64) error {
	r.table.Lock()
	known := n < r.published
	r.table.Unlock()
	if known {
		return nil
	}
	w := r.take()
	r.table.Lock()
	if n > 0 {
		r.desk.Trained(n - 1)
	}
	work := r.desk.Work(n)
	r.table.Unlock()
	for _, p := range work {
		if p.From > 0 {
			continue
		}
		batches, err := r.prompts(n, p.Round)
		if err != nil {
			return err
		}
		x := &round{number: p.Round, answers: r.ask(p, batches)}
		r.table.Lock()
		r.round[p.Round] = x
		delete(r.round, p.Round-roundsKept)
		r.table.Unlock()
	}
	r.table.Lock()
	defer r.table.Unlock()
	r.kept[n], r.published = w, n+1
	r.samplers.Tell(actors.Message{Kind: pool.Ask, Step: n})
	return nil
}

// prompts are those of a round: the data of its first step. Data are read in order, from the round that is
// trained on: rounds between may be a checkpoint's, or read before the run went back.
func (r *Source) prompts(from, n int64) (out []dataset.Batch, err error) {
	for ; from <= n && err == nil; from++ {
		out, err = r.Prompts(r.Plan.First(from))
	}
	return out, err
}

// ask makes a group of answers to be drawn of each prompt.
func (r *Source) ask(p rounds.Part, prompts []dataset.Batch) (all []*Answer) {
	c := &r.Cfg.Run
	step := r.Plan.First(p.Round)
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
				all = append(all, &Answer{Step: step, Sample: id, Index: k, Version: r.Plan.Version(p.Publication),
					Prompt: ids, Seed: dataset.Draw(uint64(c.Train.Seed), 1, id, step, 0), Record: record})
			}
		}
	}
	return all
}

// group are the answers of a task.
func (r *Source) group(t rounds.Task) []*Answer {
	n := r.Cfg.Run.Rollout.Group
	return r.round[t.Round].answers[t.Group*n : (t.Group+1)*n]
}

// drafts are the answers of a task as they are so far, for a sampler. Those that have ended are not drawn on.
func (r *Source) drafts(t rounds.Task) (out []draft) {
	most := r.Cfg.Run.Rollout.Max
	if t.To > 0 {
		most = min(most, int(t.To))
	}
	for _, a := range r.group(t) {
		if a.End == sample.EndStop || len(a.Answer) >= most {
			continue
		}
		d := draft{Index: a.Index, Seed: a.Seed, Prompt: a.Prompt, Answer: a.Answer, Most: most}
		if len(r.Cfg.Run.Rollout.Environment) > 0 {
			if d.Record, d.Heard = a.Record, a.Heard; a.script != nil {
				d.Script, d.ScriptFault = a.script.Heard, a.script.HeardFault
			}
		}
		out = append(out, d)
	}
	return out
}

// add puts what was drawn of a task behind what its answers had.
func (r *Source) add(t rounds.Task, got []draft) {
	group, version := r.group(t), r.Plan.Version(t.Publication)
	for _, g := range got {
		a := group[g.Index]
		if len(a.Versions) == 0 && version != a.Version {
			a.Versions = [][2]int64{{0, a.Version}}
		}
		if len(a.Versions) > 0 {
			a.Versions = append(a.Versions, [2]int64{int64(len(a.Answer)), version})
		}
		a.Answer, a.LogProbs, a.End = append(a.Answer[:len(a.Answer):len(a.Answer)], g.Answer...),
			append(a.LogProbs, g.LogProbs...), g.End
		a.Heard, a.HeardFault = append(a.Heard[:len(a.Heard):len(a.Heard)], g.Heard...), g.HeardFault
		if g.Values != nil {
			a.Values = g.Values
		}
	}
}

// complete has what is drawn judged. The caller holds the table.
func (r *Source) complete() {
	if !r.judging && r.failed == nil && r.ctx.Err() == nil && r.desk.Complete(r.judged) {
		r.judging = true
		go r.judgeAll()
	}
}

// fail ends the drawing of answers. The caller holds the table.
func (r *Source) fail(err error) {
	if r.failed == nil {
		r.failed = err
		r.change()
	}
}

// judgeAll judges the rounds that are drawn, in order.
func (r *Source) judgeAll() {
	for {
		r.table.Lock()
		if r.failed != nil || !r.desk.Complete(r.judged) {
			r.judging = false
			r.table.Unlock()
			return
		}
		x := r.round[r.judged]
		r.table.Unlock()
		err := r.judge(x.answers)
		if err == nil {
			err = r.write(r.Plan.First(x.number), x.answers)
		}
		r.table.Lock()
		if err != nil {
			r.fail(err)
		} else {
			r.judged++
			r.change()
		}
		r.table.Unlock()
	}
}

// opened tells whether answers are drawn already.
func (r *Source) opened() bool {
	r.table.Lock()
	defer r.table.Unlock()
	return r.log != nil
}

// open makes the samplers, when answers are drawn for the first time.
func (r *Source) open() (err error) {
	if r.opened() {
		return nil
	}
	c := &r.Cfg.Run
	path := filepath.Join(c.Log.Dir, FileName)
	if err := cutLog(path, r.Plan.First(r.judged)); err != nil { // what is drawn or judged again
		return err
	}
	if r.log, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	r.table.Lock()
	defer r.table.Unlock()
	if c.Rollout.Samplers > 0 || c.Reward.Judges > 0 {
		if r.launcher, err = newLauncher(&r.Of, r.ctx); err != nil {
			return err
		}
	}
	if n := c.Reward.Judges; n > 0 {
		r.judges, r.reward = r.newJudges(n, judgePause), r.asks
	}
	if err := r.draws(c.Rollout.Samplers); err != nil {
		return err
	}
	r.complete()
	return nil
}
