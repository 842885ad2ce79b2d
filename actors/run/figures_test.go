package run

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run/rollout"
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
	require.Len(t, want[0].Figures, 9)
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
	of := func(more ...string) ([]Metrics, []rollout.Answer) {
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
