package rollout

import (
	"math"
	"slices"

	"github.com/lfactor/lfactor/stages/sample"
)

// answered enters into a step's figures how the answers are that it is trained on, in groups to one prompt each.
func answered(figures map[string]float64, all []*Answer, group int, kind string) {
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
	figures["completions/min_length"] = slices.Min(lengths)
	figures["completions/max_length"] = slices.Max(lengths)
	for name, v := range map[string][]float64{"completions/mean_length": lengths, "completions/clipped_ratio": cut,
		"reward": rewards, "rewards/" + kind + "/mean": rewards, "reward_std": spreads, "frac_reward_zero_std": same} {
		if mean, s := spread(v); len(v) > 0 {
			if figures[name] = mean; name == "reward" {
				figures["rewards/"+kind+"/std"] = s
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
