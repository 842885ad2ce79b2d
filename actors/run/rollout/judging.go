package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
)

// judge gives answers their rewards, and groups their advantages. An answer without a reward is not learnt
// from, and counts in no mean; it is set aside like a bad sample.
// A step in which all rewards failed teaches nothing, and is an error.
func (r *Source) judge(all []*Answer) error {
	if err := r.judgeSome(all, all); err != nil || r.loss.Policy.Unjudged {
		return err
	}
	if a := absent(all); a != nil {
		return fmt.Errorf("the environment answered none of the %d answers of step %d; the first: %s: mend "+
			"rollout.environment, and start the run again", len(all), a.Step, a.HeardFault)
	}
	if slices.ContainsFunc(all, func(a *Answer) bool { return a.Reward != nil }) {
		return nil
	}
	return fmt.Errorf("none of the %d answers of step %d has a reward; of the first: %s: mend what judges them "+
		"(reward.kind: %s), and start the run again", len(all), all[0].Step, all[0].Fault, r.Cfg.Run.Reward.Kind)
}

// absent is the first answer that an environment has failed, where it has said nothing to any: those that ended
// by their length have asked none, and have rewards. Else it is nil.
func absent(all []*Answer) (first *Answer) {
	for _, a := range all {
		switch {
		case len(a.Heard) > 0:
			return nil
		case first == nil && a.HeardFault != "":
			first = a
		}
	}
	return first
}

// judgeSome gives some of a round's answers their rewards, and all their advantages.
func (r *Source) judgeSome(some, all []*Answer) error {
	tok := r.Tok
	for _, a := range some {
		ids := a.Answer
		if a.End == sample.EndStop {
			ids = ids[:len(ids)-1]
		}
		a.Text, a.Asked = tok.Decode(ids, true), tok.Decode(a.Prompt, false)
	}
	if err := r.rewarded(some); err != nil {
		return err
	}
	if r.loss.Policy.Tokens != nil {
		return r.credit(all)
	}
	r.compare(all)
	return nil
}

// compare makes advantages of the rewards of groups.
func (r *Source) compare(all []*Answer) {
	c := &r.Cfg.Run
	var groups [][]float64
	var of [][]*Answer
	for i := 0; i < len(all); i += c.Rollout.Group {
		var values []float64
		var answers []*Answer
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
}

// rewarded asks for the rewards of answers. One that has none is set aside.
func (r *Source) rewarded(all []*Answer) error {
	var results []reward.Result
	if !r.loss.Policy.Unjudged {
		results = r.results(all)
	}
	if r.ctx.Err() != nil {
		return ErrLeft
	}
	r.table.Lock()
	failed := r.failed // where nobody judges any more, answers are not at fault
	r.table.Unlock()
	if failed != nil {
		return failed
	}
	for i, a := range all {
		switch {
		case a.HeardFault != "":
			a.Fault = a.HeardFault
		case results == nil:
		case results[i].Err == nil:
			a.Reward, a.Suspect = &results[i].Value, results[i].Suspect
		default:
			a.Fault = results[i].Err.Error()
		}
	}
	for _, a := range all {
		if a.Fault == "" {
			continue
		}
		if err := r.setAside(a); err != nil {
			return err
		}
	}
	return nil
}

// results are the rewards of answers. One whose environment has failed is not judged.
func (r *Source) results(all []*Answer) []reward.Result {
	whole := slices.DeleteFunc(slices.Clone(all), func(a *Answer) bool { return a.HeardFault != "" })
	asked := make([]reward.Answer, len(whole))
	for i, a := range whole {
		asked[i] = reward.Answer{Prompt: a.Asked, Text: a.Text, Record: a.Record,
			Tokens: append(a.Prompt[:len(a.Prompt):len(a.Prompt)], a.Answer...), Tokenizer: r.Tok}
		if len(r.Cfg.Run.Rollout.Environment) > 0 { // one that was never asked gave nothing
			sum := earned(a.Heard)
			asked[i].Earned = &sum
		}
	}
	judged := reward.Each(r.ctx, r.reward, &r.Cfg.Run.Reward, asked)
	out := make([]reward.Result, len(all))
	for i, a := range all {
		if a.HeardFault != "" {
			out[i].Err = errors.New(a.HeardFault)
			continue
		}
		out[i], judged = judged[0], judged[1:]
	}
	return out
}

// learns reports whether an answer is trained on.
func (r *Source) learns(a *Answer) bool {
	return a.Reward != nil || r.loss.Policy.Unjudged && a.Fault == ""
}

// credit finds the advantages of tokens.
func (r *Source) credit(all []*Answer) error {
	var sequences [][]int32
	var of []*Answer
	for _, a := range all {
		if r.learns(a) {
			of = append(of, a)
			sequences = append(sequences, append(append([]int32{}, a.Prompt...), a.Answer...))
		}
	}
	drawn := make([]objective.Drawn, len(of))
	for i, a := range of {
		drawn[i] = objective.Drawn{LogProbs: a.drawnOf(a.LogProbs), Values: a.drawnOf(a.Values)}
		if a.Reward != nil {
			drawn[i].Reward = *a.Reward
		}
	}
	if r.ref != nil {
		known, err := r.ref.LogProbs(sequences)
		if err != nil {
			return err
		}
		for i, a := range of {
			drawn[i].Reference = a.drawnOf(known[i][len(a.Prompt)-1:])
		}
	}
	p := fit.LossParams(r.Cfg)
	advantages, returns := r.loss.Policy.Tokens(&p, drawn)
	for i, a := range of {
		a.Advantages = a.spread(narrow(advantages[i]))
		for _, x := range advantages[i] {
			a.Advantage += x / float64(len(advantages[i]))
		}
		if returns != nil {
			a.Returns = a.spread(narrow(returns[i]))
		}
	}
	return nil
}

func narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

// write appends a step's answers to the log, and says how they are.
func (r *Source) write(step int64, all []*Answer) error {
	var sum, tokens float64
	signal, n, groups, suspected := 0, 0, 0, 0
	group := r.Cfg.Run.Rollout.Group
	for i, a := range all {
		line, err := json.Marshal(a)
		if err != nil {
			return err
		}
		if _, err := r.log.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("the log of drawn answers: %w", err)
		}
		tokens += float64(a.own())
		if a.Suspect {
			suspected++
		}
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
	age := ""
	if suspected > 0 {
		age = fmt.Sprintf(", %d suspected of deceiving their judge", suspected)
	}
	if r.Plan.Staleness > 0 {
		age += fmt.Sprintf(", drawn by the weights behind step %d", all[0].Version)
	}
	r.Say("answers of step %d: reward %.3f, %.1f tokens, signal in %d of %d groups%s", step,
		sum/max(1, float64(n)), tokens/float64(len(all)), signal, groups, age)
	return nil
}

// setAside enters an answer without a reward among the bad samples, which ends the run when they are too many.
func (r *Source) setAside(a *Answer) error {
	bad := dataset.Bad{Source: FileName, Document: a.Step*int64(r.Cfg.Run.Rollout.Group) + int64(a.Index),
		Place:  dataset.Place{File: FileName, Offset: a.Step},
		Reason: fmt.Sprintf("answer %d to sample %d in step %d has no reward: %s", a.Index, a.Sample, a.Step, a.Fault)}
	bad.Document = bad.Document<<32 | a.Sample&0xffffffff
	return r.SetAside(bad)
}
