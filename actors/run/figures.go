package run

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/sample"
)

// Figures are columns of a step's line that not every run has, by name: what a loss over answers is made of, and how
// answers are that a run draws. Docs of metrics list them, with their meaning.
type Figures map[string]float64

// columns is a line without its figures.
type columns Metrics

// MarshalJSON writes figures as columns among the others; one that is no number is left out.
func (m Metrics) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(columns(m))
	f := maps.Clone(m.Figures)
	maps.DeleteFunc(f, func(_ string, x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
	if err != nil || len(f) == 0 {
		return text, err
	}
	more, err := json.Marshal(f)
	return append(append(text[:len(text)-1], ','), more[1:]...), err
}

// known are the columns of numbers that a line has beside figures.
var known = func() (out map[string]json.RawMessage) {
	text, _ := json.Marshal(columns{Pass: 1}) // has no value that JSON cannot hold; others are no numbers
	_ = json.Unmarshal(text, &out)            // as above
	return out
}()

// UnmarshalJSON is the inverse of MarshalJSON.
func (m *Metrics) UnmarshalJSON(text []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, (*columns)(m)); err != nil {
		return err
	}
	m.Figures = nil
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for name, raw := range all {
		var x float64
		if _, own := known[name]; own || json.Unmarshal(raw, &x) != nil || string(raw) == "null" {
			continue
		}
		m.set(name, x)
	}
	return nil
}

// set adds a figure.
func (m *Metrics) set(name string, x float64) {
	if m.Figures == nil {
		m.Figures = Figures{}
	}
	m.Figures[name] = x
}

// looked takes what the loss of a step has shown: of each figure a sum and of how many.
func (m *Metrics) looked(sums []float64) {
	for f, name := range objective.Figures {
		if 2*f+1 < len(sums) && sums[2*f+1] > 0 {
			m.set(name, sums[2*f]/sums[2*f+1])
		}
	}
	chosen, has := m.Figures[objective.Figures[objective.ChosenReward]]
	rejected, both := m.Figures[objective.Figures[objective.RejectedReward]]
	if _, pairs := m.Figures[objective.Figures[objective.Margins]]; has && both && !pairs { // of single answers
		m.set(objective.Figures[objective.Margins], chosen-rejected)
	}
}

// split parts what a loss has shown from how experts were used.
func split(all []core.Load) (loads []core.Load, figures []float64) {
	if n := len(all); n > 0 && all[n-1].Block == core.Figures {
		return all[:n-1], all[n-1].Rows
	}
	return all, nil
}

// answered is how the answers are that a step is trained on, in groups to one prompt each.
func (m *Metrics) answered(all []*rollout, group int, kind string) {
	var lengths, rewards, spreads []float64
	cut := 0.0
	for i, a := range all {
		lengths = append(lengths, float64(a.own()))
		if a.End != sample.EndStop {
			cut++
		}
		if a.Reward != nil {
			rewards = append(rewards, *a.Reward)
		}
		if i%group == group-1 {
			var own []float64
			for _, b := range all[i+1-group : i+1] {
				if b.Reward != nil {
					own = append(own, *b.Reward)
				}
			}
			if len(own) > 1 {
				_, s := spread(own)
				spreads = append(spreads, s)
			}
		}
	}
	mean, _ := spread(lengths)
	m.set("completions/mean_length", mean)
	m.set("completions/min_length", slices.Min(lengths))
	m.set("completions/max_length", slices.Max(lengths))
	m.set("completions/clipped_ratio", cut/float64(len(all)))
	if len(rewards) == 0 {
		return
	}
	mean, s := spread(rewards)
	m.set("reward", mean)
	m.set("rewards/"+kind+"/mean", mean)
	m.set("rewards/"+kind+"/std", s)
	if len(spreads) > 0 {
		mean, _ = spread(spreads)
		m.set("reward_std", mean)
		same := 0.0
		for _, s := range spreads {
			if s == 0 {
				same++
			}
		}
		m.set("frac_reward_zero_std", same/float64(len(spreads)))
	}
}

// spread is the mean of numbers, and their deviation as of a sample.
func spread(v []float64) (mean, deviation float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	for _, x := range v {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / max(1, float64(len(v)-1)))
}
