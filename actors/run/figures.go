package run

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors"
	"github.com/lfactor/lfactor/actors/core"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/sample"
)

// Figures are columns of a step's line that not every run has, by name; docs/json.md says what each is.
type Figures map[string]float64

// columns is a line without its figures, and numbers are those of its columns that are numbers.
type columns Metrics

var numbers = strings.Fields("step loss grad_norm lr tokens_per_second mfu data_wait_seconds peak_bytes loss_scale seconds " +
	"slowest_rank pass")

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

// UnmarshalJSON is the inverse of MarshalJSON.
func (m *Metrics) UnmarshalJSON(text []byte) error {
	all := map[string]any{}
	err := json.Unmarshal(text, (*columns)(m))
	if m.Figures = (Figures{}); err == nil {
		err = json.Unmarshal(text, &all)
	}
	for name, v := range all {
		if x, yes := v.(float64); yes && !slices.Contains(numbers, name) {
			m.Figures[name] = x
		}
	}
	return err
}

// counted takes how experts were used in a step, and what its loss has shown.
func (p *reporter) counted(m actors.Message) {
	loads := core.Loads(m.Values)
	if n := len(loads); loads[n-1].Block == core.Figures { // behind those of layers
		loads, p.figures = loads[:n-1], loads[n-1].Rows
	}
	if len(loads) > 0 {
		p.loads, p.loadsAt = loads, m.Step
	}
}

// looked takes what the loss of a step has shown: of each figure a sum and of how many.
func (m *Metrics) looked(sums []float64) {
	for f := 0; 2*f+1 < len(sums); f++ {
		if n := sums[2*f+1]; n > 0 {
			m.Figures[objective.Figures[f]] = sums[2*f] / n
		}
	}
	chosen, has := m.Figures["rewards/chosen"]
	if rejected, both := m.Figures["rewards/rejected"]; has && both { // also of single answers
		m.Figures["rewards/margins"] = chosen - rejected
	}
}

// answered is how the answers are that a step is trained on, in groups to one prompt each.
func (m *Metrics) answered(all []*rollout, group int, kind string) {
	var lengths, cut, rewards, spreads, same []float64
	for part := range slices.Chunk(all, group) {
		was := len(rewards)
		for _, a := range part {
			lengths, cut = append(lengths, float64(a.own())), append(cut, number(a.End != sample.EndStop))
			if a.Reward != nil {
				rewards = append(rewards, *a.Reward)
			}
		}
		if own := rewards[was:]; len(own) > 1 {
			_, s := spread(own)
			spreads, same = append(spreads, s), append(same, number(s == 0))
		}
	}
	m.Figures["completions/min_length"] = slices.Min(lengths)
	m.Figures["completions/max_length"] = slices.Max(lengths)
	for name, v := range map[string][]float64{"completions/mean_length": lengths, "completions/clipped_ratio": cut,
		"reward": rewards, "rewards/" + kind + "/mean": rewards, "reward_std": spreads, "frac_reward_zero_std": same} {
		if mean, s := spread(v); len(v) > 0 {
			if m.Figures[name] = mean; name == "reward" {
				m.Figures["rewards/"+kind+"/std"] = s
			}
		}
	}
}

// number is 1 for true.
func number(yes bool) float64 { return map[bool]float64{true: 1}[yes] }

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
