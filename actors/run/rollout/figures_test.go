package rollout

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/objective"
)

type figures = map[string]float64

// TestAnswered: rewards of groups, of which one answer has none.
func TestAnswered(t *testing.T) {
	var all []*Answer
	for i, x := range []float64{1, 3, 2, 2, 5, -1} {
		a := &Answer{Answer: make([]int32, i+1), End: "length", Reward: &x}
		if x < 0 {
			a.Reward, a.End = nil, "stop"
		}
		all = append(all, a)
	}
	got := figures{}
	answered(got, all, 2, "exact")
	require.Equal(t, figures{"reward": 2.6, "rewards/exact/mean": 2.6, "rewards/exact/std": math.Sqrt(2.3),
		"reward_std": math.Sqrt2 / 2, "frac_reward_zero_std": 0.5, "completions/mean_length": 3.5, "completions/min_length": 1,
		"completions/max_length": 6, "completions/clipped_ratio": 5. / 6}, roundFigures(got))
}

// roundFigures takes the last bits away.
func roundFigures(f figures) figures {
	for k, x := range f {
		for _, near := range []float64{math.Sqrt(2.3), 5. / 6, math.Sqrt2 / 2, 2.6, 3.5} {
			if math.Abs(x-near) < 1e-12 {
				f[k] = near
			}
		}
	}
	return f
}

// TestFiguresAreDocumented: docs/json.md has a row for each column that a run may write.
func TestFiguresAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/json.md")
	require.NoError(t, err)
	got := figures{}
	answered(got, []*Answer{{Reward: new(float64), Answer: []int32{1}}, {Reward: new(float64)}}, 2, "KIND")
	for _, name := range append(append(slices.Sorted(maps.Keys(got)), "rewards/margins"), objective.Figures...) {
		require.Contains(t, string(page), fmt.Sprintf("| `%s` |", name))
	}
}
