package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
)

// trained runs `train` in a directory, where it succeeds, and gives its metrics.
func trained(t *testing.T, dir string, args ...string) []run.Metrics {
	t.Helper()
	code, out := runIn(t, dir, nil, append([]string{"train", "run.yaml"}, args...)...)
	require.Equal(t, 0, code, out)
	return metrics(t, dir)
}

// weightsOf is a directory whose run begins from the weights that another has trained, in Hugging Face's form.
func weightsOf(t *testing.T, dir string) string {
	t.Helper()
	code, out := runIn(t, dir, nil, "ckpt", "convert", "ckpt", "hf")
	require.Equal(t, 0, code, out)
	text := regexp.MustCompile(`(?s)model:.*?\ndata:`).ReplaceAllString(clitest.TinyYAML,
		fmt.Sprintf("model: {path: %q}\ndata:", filepath.Join(dir, "hf")))
	loads := tinyRun(t)
	require.NoError(t, os.WriteFile(filepath.Join(loads, "run.yaml"), []byte(text), 0o644))
	return loads
}

// startCase is a model with plans that a run of it may have, each to the losses of one rank.
type startCase struct {
	model []string
	plans [][]string
	// ordinary are the cases that run without -long, as start/plan/processes.
	ordinary []string
}

// startCases have the axes of plans in few cases. With copies of experts a member of the moves that has no
// copy to sum sends a part without tensors, which has to cross processes like any other; weights come with a
// tensor for each expert, of which copies are none.
var startCases = map[string]startCase{
	"dense": {nil, [][]string{
		{"plan.pp=2", "plan.dp=2", "plan.zero=1"}, {"plan.pp=1", "plan.tp=2", "plan.sequence_parallel=true",
			"plan.dp=2", "plan.zero=3"},
		{"plan.pp=2", "plan.cp=2", "plan.dp=1", "plan.zero=2"}, {"plan.pp=4", "plan.dp=1",
			"plan.schedule=zb-h1"}},
		[]string{"weights/1/2"}},
	"experts": {mixed[:4], [][]string{
		{"plan.pp=1", "plan.ep=2", "plan.dp=4", "plan.zero=1", "train.balance_every=3"},
		{"plan.pp=2", "plan.ep=2", "plan.dp=2", "plan.zero=3"}}, nil},
	"copies": {mixed[:4], [][]string{
		{"plan.pp=1", "plan.ep=2", "plan.dp=4", "plan.zero=0"}, {"plan.pp=1", "plan.ep=2", "plan.dp=4",
			"plan.zero=1"},
		{"plan.pp=1", "plan.ep=2", "plan.dp=4", "plan.zero=2"}, {"plan.pp=1", "plan.ep=2", "plan.dp=4",
			"plan.zero=3"},
		{"plan.pp=2", "plan.ep=2", "plan.dp=2", "plan.zero=1"}},
		[]string{"random/1/2", "weights/2/2", "resume/3/2"}},
}

// TestStarts: a run begins from random weights, from a Hugging Face directory, or from the checkpoint of a
// run with another plan, in one process or two; its losses are those of one rank within what another order of
// sums makes of them.
func TestStarts(t *testing.T) {
	t.Parallel()
	for name, c := range startCases {
		if !*long && len(c.ordinary) == 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from, want := startsOf(t, c.model)
			for _, start := range []string{"random", "weights", "resume"} {
				model := c.model
				if start == "weights" {
					model = nil
				}
				for n, plan := range c.plans {
					if name == "copies" {
						plan = slices.Concat(plan, []string{"plan.redundant_experts=2",
							"train.balance_every=3"})
					}
					for procs := 1; procs <= 2; procs++ {
						is := fmt.Sprintf("%s/%d/%d", start, n, procs)
						if !*long && !slices.Contains(c.ordinary, is) {
							continue
						}
						t.Run(is, func(t *testing.T) {
							t.Parallel()
							startedAs(t, from[start], want[start], slices.Concat(model, plan,
								[]string{"train.steps=8", fmt.Sprint("plan.procs=", procs)}))
						})
					}
				}
			}
		})
	}
}

// startsOf makes a directory for each start, and gives the metrics of one rank from there.
func startsOf(t *testing.T, model []string) (from map[string]string, want map[string][]run.Metrics) {
	t.Helper()
	one := []string{"plan.pp=1", "plan.dp=1", "checkpoint.interval=4", "train.steps=8"}
	from = map[string]string{"random": tinyRun(t), "resume": tinyRun(t)}
	want = map[string][]run.Metrics{"random": trained(t, from["random"], slices.Concat(model, one)...)}
	want["resume"] = want["random"][4:]
	trained(t, from["resume"], slices.Concat(model, one[:3], []string{"train.steps=4",
		"schedule.decay_steps=8"})...)
	from["weights"] = weightsOf(t, from["random"])
	want["weights"] = trained(t, from["weights"], one...)
	for start, dir := range from {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "run")))
		if start != "resume" {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, "ckpt")))
		}
	}
	return from, want
}

// startedAs trains in a copy of a directory, to given losses.
func startedAs(t *testing.T, from string, want []run.Metrics, args []string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	got := trained(t, dir, args...)
	require.Len(t, got, len(want))
	for i, x := range want {
		require.Equal(t, x.Step, got[i].Step)
		require.InEpsilon(t, x.Loss, got[i].Loss, 1e-4, "step %d", x.Step)
	}
}
