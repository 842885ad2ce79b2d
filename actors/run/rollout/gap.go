package rollout

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
func (a *Answer) behind() []int64 {
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
func (a *Answer) fresh(step int64) []bool {
	out := make([]bool, len(a.Answer))
	told := a.Told()
	for i, v := range a.behind() {
		out[i] = v == step-1 && (told == nil || !told[i])
	}
	return out
}

// compared counts the tokens of a step's answers that are compared, and those that older weights drew.
func compared(step int64, all []*Answer) (d DrawnGap) {
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

// Gap is what a step's line says of its drawn tokens, nil of a run that draws none. Its figures get how its answers are.
func (r *Source) Gap(step int64, figures map[string]float64, gap float64) *DrawnGap {
	if r == nil {
		return nil
	}
	r.table.Lock()
	x := r.round[r.Plan.Round(step)]
	r.table.Unlock()
	if x == nil { // kept no longer: a run went back further than it keeps
		return nil
	}
	answered(figures, x.answers, r.Cfg.Run.Rollout.Group, r.Cfg.Run.Reward.Kind)
	d := compared(step, x.answers)
	d.Gap = gap
	return &d
}

// Note is what a step's line on the screen says of it.
func (d *DrawnGap) Note() string {
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
