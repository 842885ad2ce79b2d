package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/kernels/objective"
)

// linesOf reads a run's metrics.
func linesOf(t *testing.T, log string) (out []Metrics) {
	t.Helper()
	text, err := os.ReadFile(log + "/metrics.jsonl")
	require.NoError(t, err)
	for s := range strings.Lines(string(text)) {
		var m Metrics
		require.NoError(t, json.Unmarshal([]byte(s), &m))
		out = append(out, m)
	}
	return out
}

// sameFigures holds two lines to one another.
func sameFigures(t *testing.T, want, got Figures, delta float64, why any) {
	t.Helper()
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)), "%v", why)
	for name, x := range want {
		require.InDelta(t, x, got[name], delta, "%v: %s", why, name)
	}
}

// TestPairFigures: what a loss over pairs has shown does not depend on the plan: to the bit where the sums are the same, and
// in the first step, which all begin with the same weights, within the rounding of sums elsewhere.
func TestPairFigures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writePairs(t, dir, false)
	args := []string{"objective.kind=simpo", "objective.sft_weight=0.5", "train.steps=3"}
	_, log := pairsRun(t, dir, args...)
	want := linesOf(t, log)
	require.Len(t, want[0].Figures, 7)
	for _, more := range [][]string{{"plan.pp=2"}, {"train.micro_batch=2"}, {"plan.dp=2"}, {"plan.tp=2"},
		{"plan.tp=2", "plan.sequence_parallel=true", "plan.dp=2"}} {
		_, log := pairsRun(t, dir, append(more, args...)...)
		got := linesOf(t, log)
		if more[0] == "plan.pp=2" {
			require.Equal(t, want[2].Figures, got[2].Figures)
		}
		sameFigures(t, want[0].Figures, got[0].Figures, 1e-6, more)
	}
}

// TestDrawnFigures: lines of a run that draws its answers say how those of rollouts.jsonl are, and what the plan does not
// change; the entropy is that of the log-probabilities with which the answers were drawn.
func TestDrawnFigures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	args := []string{"train.steps=2", "objective.kl=0.1", "objective.clip_low=1e-4", "objective.clip_high=1e-4",
		"rollout.updates=2"}
	of := func(more ...string) ([]Metrics, []rollout) {
		log := t.TempDir() + "/log"
		_, drawn := policyRun(t, dir, append(append(more, args...), "log.dir="+log)...)
		return linesOf(t, log), drawn
	}
	want, drawn := of()
	f := want[0].Figures
	sum, squares, tokens, nll, cut := 0.0, 0.0, 0.0, 0.0, 0.0
	for _, a := range drawn {
		sum, squares, tokens = sum+*a.Reward, squares+*a.Reward**a.Reward, tokens+float64(len(a.Answer))
		for _, x := range a.LogProbs {
			nll -= float64(x)
		}
		if a.End != "stop" {
			cut++
		}
	}
	n := float64(len(drawn))
	require.InDelta(t, sum/n, f["reward"], 1e-12)
	require.InDelta(t, math.Sqrt((squares-sum*sum/n)/(n-1)), f["rewards/planted/std"], 1e-9)
	require.InDelta(t, tokens/n, f["completions/mean_length"], 1e-9)
	require.InDelta(t, cut/n, f["completions/clipped_ratio"], 1e-12)
	require.InDelta(t, nll/tokens, f["entropy"], 1e-6)
	require.Zero(t, f["kl"], "the reference is what the run began with")
	require.Zero(t, f["clip_ratio/region_mean"])
	require.Positive(t, want[1].Figures["kl"])
	require.Positive(t, want[1].Figures["clip_ratio/region_mean"], "the weights moved since the answers were drawn")
	for _, more := range []string{"plan.pp=2", "plan.dp=2"} {
		got, _ := of(more)
		sameFigures(t, f, got[0].Figures, 1e-6, more)
		sameFigures(t, want[1].Figures, got[1].Figures, 1e-3, more)
	}
}

// TestAnswered: rewards of groups, of which one answer has none.
func TestAnswered(t *testing.T) {
	var all []*rollout
	for i, x := range []float64{1, 3, 2, 2, 5, -1} {
		a := &rollout{Answer: make([]int32, i+1), End: "length", Reward: &x}
		if x < 0 {
			a.Reward, a.End = nil, "stop"
		}
		all = append(all, a)
	}
	m := Metrics{Figures: Figures{}}
	m.answered(all, 2, "exact")
	require.Equal(t, Figures{"reward": 2.6, "rewards/exact/mean": 2.6, "rewards/exact/std": math.Sqrt(2.3),
		"reward_std": math.Sqrt2 / 2, "frac_reward_zero_std": 0.5, "completions/mean_length": 3.5, "completions/min_length": 1,
		"completions/max_length": 6, "completions/clipped_ratio": 5. / 6}, roundFigures(m.Figures))
}

// roundFigures takes the last bits away.
func roundFigures(f Figures) Figures {
	for k, x := range f {
		for _, near := range []float64{math.Sqrt(2.3), 5. / 6, math.Sqrt2 / 2, 2.6, 3.5} {
			if math.Abs(x-near) < 1e-12 {
				f[k] = near
			}
		}
	}
	return f
}

// TestFiguresAsColumns: figures are columns among the others, in a line and read back; what is no number is left out.
func TestFiguresAsColumns(t *testing.T) {
	m := Metrics{Step: 3, Loss: 2, Skipped: true, Pass: 1.5, Figures: Figures{"rewards/chosen": 0.5, "kl": math.NaN()}}
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.Contains(t, string(text), `"pass":1.5,"rewards/chosen":0.5}`)
	var back Metrics
	require.NoError(t, json.Unmarshal(text, &back))
	delete(m.Figures, "kl")
	require.Equal(t, m, back)
	m.Figures = Figures{}
	back = Metrics{}
	text, err = json.Marshal(m)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, m, back)
}

// TestFiguresAreDocumented: docs/json.md has a row for each column that a run may write.
func TestFiguresAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/json.md")
	require.NoError(t, err)
	m := Metrics{Figures: Figures{}}
	m.answered([]*rollout{{Reward: new(float64), Answer: []int32{1}}, {Reward: new(float64)}}, 2, "KIND")
	for _, name := range append(append(slices.Sorted(maps.Keys(m.Figures)), "rewards/margins"), objective.Figures...) {
		require.Contains(t, string(page), fmt.Sprintf("| `%s` |", name))
	}
}
