package run

import (
	"fmt"
)

// DrawnGap is what a line of metrics.jsonl says of the log-probabilities of the tokens that a step is trained
// on: how far those that the forward pass finds are from those with which the sampler drew them.
type DrawnGap struct {
	// Gap is the largest difference, in nats, of the tokens that were drawn by the weights that the step
	// begins with: 0, where sampler and trainer take the same sums.
	Gap    float64 `json:"gap"`
	Tokens int     `json:"tokens"` // that are compared
	// Older are the tokens that older weights drew, as with rollout.staleness or in the later ones of
	// rollout.updates: other weights give other log-probabilities, so that they are left out.
	Older int `json:"older"`
	// Suspected is the share of the step's answers that seem to have meant to deceive their judge.
	Suspected float64 `json:"suspected,omitempty"`
}

// behind are the updates behind the weights that drew each token of an answer.
func (a *rollout) behind() []int64 {
	out := make([]int64, len(a.Answer))
	next := 0
	for i := range out {
		out[i] = a.Version
		for next < len(a.Versions) && a.Versions[next][0] <= int64(i) {
			next++
		}
		if next > 0 {
			out[i] = a.Versions[next-1][1]
		}
	}
	return out
}

// fresh tells of each token of an answer whether the weights that drew it are those that a step begins with.
func (a *rollout) fresh(step int64) []bool {
	out := make([]bool, len(a.Answer))
	told := a.told()
	for i, v := range a.behind() {
		out[i] = v == step-1 && (told == nil || !told[i])
	}
	return out
}

// compared counts the tokens of a step's answers that are compared, and those that older weights drew.
func compared(step int64, all []*rollout) (d DrawnGap) {
	for _, a := range all {
		n := 0
		for _, fresh := range a.fresh(step) {
			if fresh {
				n++
			}
		}
		d.Tokens, d.Older = d.Tokens+n, d.Older+a.own()-n
		if a.Suspect {
			d.Suspected += 1 / float64(len(all))
		}
	}
	return d
}

// drawnGap is what a step's line says of its drawn tokens, nil of a run that draws none. The line gets how its answers are.
func (r *rollouts) drawnGap(line *Metrics, gap float64) *DrawnGap {
	if r == nil {
		return nil
	}
	r.table.Lock()
	x := r.round[r.plan.Round(line.Step)]
	r.table.Unlock()
	if x == nil { // kept no longer: a run went back further than it keeps
		return nil
	}
	line.answered(x.answers, r.d.r.cfg.Run.Rollout.Group, r.d.r.cfg.Run.Reward.Kind)
	d := compared(line.Step, x.answers)
	d.Gap = gap
	return &d
}

// gapped tells of the first step in which sampler and trainer differ, and why that may be.
func (p *reporter) gapped(step int64, d *DrawnGap) {
	if d == nil || d.Gap == 0 || p.gaps {
		return
	}
	p.gaps = true
	p.say("! step %d: log-probabilities of the sampler and the trainer differ by up to %.3g nats, of %d "+
		"tokens that were drawn by the weights that train on them: %s; ratios of policies are off by as "+
		"much", step, d.Gap, d.Tokens, p.r.whyGap())
}

// note is what a step's line on the screen says of it.
func (d *DrawnGap) note() string {
	switch {
	case d == nil:
		return ""
	case d.Tokens == 0:
		return "  drawn-gap none: older weights drew all tokens"
	case d.Older > 0:
		return fmt.Sprintf("  drawn-gap %.3g (%d of %d tokens are of older weights)", d.Gap, d.Older, d.Tokens+d.Older)
	}
	return fmt.Sprintf("  drawn-gap %.3g", d.Gap)
}

// whyGap is what in a run's file has sampler and trainer compute otherwise.
func (r *Run) whyGap() string {
	switch t := &r.cfg.Run.Train; {
	case r.draws():
		return "what training draws at random, such as lora.dropout, the sampler does not"
	case t.LowPrecision != "none":
		return fmt.Sprintf("train.low_precision: %s rounds what training multiplies, and nothing that draws",
			t.LowPrecision)
	case t.QAT != "none":
		return fmt.Sprintf("train.qat: %s rounds the weights that training multiplies, and none that draw", t.QAT)
	case t.Router.Capacity > 0:
		return "train.router.capacity drops tokens that training has too many of, and the sampler drops none"
	}
	return "that is a fault of lfactor: please report it with run.yaml of log.dir"
}
