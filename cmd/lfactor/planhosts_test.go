package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/layout"
	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim/planner"
	"github.com/lfactor/lfactor/sim/rehearsal"
	"github.com/lfactor/lfactor/topology/search"
)

// TestPlanHosts finds plans for a described machine; the list is sorted, and V-shaped and interleaved
// schedules take part.
func TestPlanHosts(t *testing.T) {
	t.Parallel()
	out, err := simOutput(t, "plan", shippedRun, "--hosts", "1x4", "--cluster", "h100",
		"train.global_batch=64", "-o", "json")
	require.NoError(t, err)
	var all []search.Candidate
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Len(t, all, planner.Reranked)
	for i := range all[1:] {
		require.LessOrEqual(t, all[i].Simulated, all[i+1].Simulated)
		require.Equal(t, 4, all[i].TP*all[i].PP*all[i].DP)
		require.Equal(t, 64, all[i].Batch*all[i].Micro*all[i].DP)
		if all[i].Micro >= 2*all[i].PP { // a claim on time is about pipelines that fill
			require.InEpsilon(t, all[i].Simulated, all[i].Step, 0.2, "%v: closed form and simulation",
				&all[i])
		}
	}
	p := searchOf(t, shippedRun, "--hosts", "1x4", "--cluster", "h100", "train.global_batch=64")
	space, err := p.Space.Enumerate()
	require.NoError(t, err)
	have := map[string]bool{}
	for _, c := range space {
		have[c.Schedule] = true
	}
	require.Subset(t, keysOf(have), []string{"1f1b", "interleaved", "zb-v", "v-half", "zb-2p", "dualpipev"})
}

func keysOf(m map[string]bool) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return
}

func searchOf(t *testing.T, file string, mine ...string) *planner.Search {
	t.Helper()
	var own, rest []string
	for _, a := range mine {
		if a[0] == '-' || len(own)%2 == 1 {
			own = append(own, a)
		} else {
			rest = append(rest, a)
		}
	}
	p, err := planner.New(planner.Request{Run: configs.Request{File: file, Args: rest},
		Cluster: cli.FlagValue(own, "cluster"), Hosts: cli.FlagValue(own, "hosts")})
	require.NoError(t, err)
	return p
}

// TestPlanFolded: a candidate that is simulated with one rank for each stage takes as long as all its ranks
// take in lfactor sim.
func TestPlanFolded(t *testing.T) {
	t.Parallel()
	p := searchOf(t, shippedRun, "--hosts", "1x8", "--cluster", "h100", "train.global_batch=32")
	for _, c := range []search.Candidate{
		{TP: 1, PP: 4, DP: 2, Schedule: "1f1b", Loops: 1, Batch: 2, Micro: 8, Recompute: "none"},
		{TP: 2, PP: 2, DP: 2, Zero: 1, Schedule: "zb-2p", Loops: 1, Batch: 4, Micro: 4, Recompute: "none"},
		{TP: 2, PP: 2, DP: 1, Schedule: "interleaved", Loops: 2, Batch: 4, Micro: 8, Recompute: "full"},
		{TP: 1, PP: 2, DP: 4, Zero: 1, Groups: 2, Schedule: "1f1b", Loops: 1, Batch: 2, Micro: 4, Recompute: "none"},
		{TP: 1, PP: 1, DP: 8, Zero: 3, Groups: 2, Schedule: "1f1b", Loops: 1, Batch: 2, Micro: 2, Recompute: "none",
			Overlap: true},
	} {
		_, err := p.Space.Enumerate()
		require.NoError(t, err)
		require.NoError(t, p.Space.Estimate(&c))
		require.NoError(t, p.Simulate(&c))
		out, err := simOutput(t,
			append(append([]string{"sim", shippedRun, "--cluster", "h100", "--steps", "2", "-o", "json"},
				p.Settings(&c)...), "plan.memory=1GiB")...)
		require.NoError(t, err)
		var s rehearsal.Summary
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		require.InEpsilon(t, s.Step, c.Simulated, 0.06, "%v", &c)
		peak := int64(0)
		for _, r := range s.Ranks {
			peak = max(peak, r.Peak)
		}
		require.InEpsilon(t, peak, c.Memory, 0.35,
			"%v: blocks that are traced apart share no temporaries", &c)
	}
}

// TestPlanExperts: plans that share experts out are looked at, and one that is simulated with a rank for each stage
// takes as long, and as much memory in the worst case of routing, as all its ranks take by its own layout.
func TestPlanExperts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("text"), 0o644))
	run := filepath.Join(dir, "run.yaml")
	require.NoError(t, os.WriteFile(run,
		[]byte(`model: {name: qwen/3-30b-a3b, init: random, overrides: {num_hidden_layers: 4}}
data: {kind: text, paths: [a.txt], seq_len: 1024}
train: {steps: 2, global_batch: 32, precision: bf16}
`), 0o644))
	p := searchOf(t, run, "--hosts", "1x8", "--cluster", "h100")
	all, err := p.Space.Enumerate()
	require.NoError(t, err)
	shares := map[[2]int]bool{}
	for _, c := range all {
		shares[[2]int{c.EP, c.ETP}] = true
		require.Zero(t, c.Copies()*c.TP%(c.EP*c.ETP), "%v", &c)
	}
	for _, want := range [][2]int{{1, 1}, {2, 1}, {8, 1}, {1, 2}, {4, 2}, {1, 8}} {
		require.True(t, shares[want], "%v", want)
	}
	for _, c := range []search.Candidate{
		{TP: 1, PP: 2, DP: 4, EP: 4, ETP: 1, Schedule: "1f1b", Loops: 1, Batch: 2, Micro: 4,
			Recompute: "none"},
		{TP: 2, PP: 1, DP: 4, EP: 2, ETP: 2, Zero: 1, SP: true, Schedule: "1f1b", Loops: 1, Batch: 4,
			Micro: 2, Recompute: "full"},
		{TP: 2, PP: 2, DP: 2, EP: 2, ETP: 1, Zero: 1, Schedule: "zb-2p", Loops: 1, Batch: 2, Micro: 8,
			Recompute: "none"},
		{TP: 1, PP: 2, DP: 2, Context: search.Context{CP: 2, Comm: "gather"}, EP: 4, ETP: 1, Schedule: "1f1b",
			Loops: 1, Batch: 1, Micro: 16, Recompute: "none"},
	} {
		require.NoError(t, p.Space.Estimate(&c))
		require.NoError(t, p.Simulate(&c))
		args := append([]string{"sim", run, "--cluster", "h100", "--steps", "2", "-o", "json"},
			p.Settings(&c)...)
		out, err := simOutput(t, append(args, "plan.memory=500GiB")...)
		require.NoError(t, err)
		var s rehearsal.Summary
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		t.Logf("%v: %.4f, %.4f s by its layout", &c, c.Simulated, s.Step)
		require.InEpsilon(t, s.Step, c.Simulated, 0.07, "%v", &c)
		cfg, err := configs.Load(configs.Request{File: run, Args: p.Settings(&c)})
		require.NoError(t, err)
		j, err := layout.FromConfig(cfg)
		require.NoError(t, err)
		l, err := layout.New(j)
		require.NoError(t, err)
		worst := int64(0)
		for r := range l.Ranks {
			worst = max(worst, l.Memory(r).WorstTotal())
		}
		t.Logf("%v: %d, %d bytes by its layout", &c, c.Memory, worst)
		require.InEpsilon(t, worst, c.Memory, 0.2, "%v", &c)
	}
}

// TestPlanIsCarriedOut plans for this machine and trains by the plan; a plan for another model is refused by name.
func TestPlanIsCarriedOut(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "plan", "run.yaml", "--hosts", "1x4", "--out", "plan.yaml")
	require.Zero(t, code, out)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "forced.yaml"),
		[]byte(forced(t, filepath.Join(dir, "plan.yaml"))), 0o644))
	for _, name := range []string{"plan.yaml", "forced.yaml"} {
		code, out = runIn(t, dir, nil, "train", "run.yaml", "--plan", name, "train.steps=2",
			"checkpoint.dir=ckpt-"+name, "log.dir=run-"+name)
		require.Zero(t, code, out)
	}
	require.Contains(t, out, "pp=4 dp=1 tp=1 zero=0 zb-h1, 8 microbatches")
	code, out = runIn(t, dir, nil, "train", "run.yaml", "--plan", "plan.yaml",
		"model.overrides.num_hidden_layers=8")
	require.Equal(t, exit.Usage, code)
	require.Contains(t, out, "plan.yaml:4: model: the plan is for another model: llama layers=4")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bad.yaml"),
		[]byte("model: x\nsettings:\n  train.steps: 3\n"), 0o644))
	code, out = runIn(t, dir, nil, "train", "run.yaml", "--plan", "bad.yaml")
	require.Equal(t, exit.Usage, code)
	require.Contains(t, out, "bad.yaml:3: settings.train.steps: is not a setting of a plan")
}

// forced is a plan file with another plan for the same model.
func forced(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	line := ""
	for _, l := range strings.Split(string(text), "\n") {
		if len(l) > 6 && l[:6] == "model:" {
			line = l
		}
	}
	return line + "\nsettings:\n  plan.pp: 4\n  plan.dp: 1\n  plan.tp: 1\n  plan.schedule: zb-h1\n  " +
		"train.micro_batch: 1\n"
}

func TestPlanNothingFits(t *testing.T) {
	t.Parallel()
	_, err := simOutput(t, "plan", shippedRun, "--hosts", "1x2", "--cluster", "h100", "plan.memory=1MiB")
	require.ErrorContains(t, err, "it would fit with devices of")
	require.Equal(t, exit.Fit, cli.ExitCode(err))
	for _, c := range [][2]string{{"9999", "cluster h100 has"}, {"1x99", "has 8 devices"},
		{"x", "want hosts"}, {"0", "want hosts"}} {
		_, err := simOutput(t, "plan", shippedRun, "--cluster", "h100", "--hosts", c[0])
		require.ErrorContains(t, err, c[1])
		require.Equal(t, exit.Usage, cli.ExitCode(err))
	}
}

// TestPlanTensors: lfactor plan --tensors shows what becomes of each tensor, writes it as a plan that a run
// takes, and goes with no other search.
func TestPlanTensors(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "p.yaml")
	text, err := simOutput(t, "plan", shippedRun, "--tensors", "--cluster", "h100", "--out", out,
		"-o", "json")
	require.NoError(t, err)
	var have planner.Tensors
	require.NoError(t, json.Unmarshal([]byte(text), &have))
	require.NotEmpty(t, have.List)
	require.Positive(t, have.StepSeconds)
	text, err = simOutput(t, "sim", shippedRun, "--plan", out, "--cluster", "h100", "-o", "json")
	require.NoError(t, err)
	var sum struct {
		StepSeconds float64 `json:"step_seconds"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &sum))
	require.InDelta(t, have.StepSeconds, sum.StepSeconds, 1e-9)
	text, err = simOutput(t, "plan", shippedRun, "--tensors", "--cluster", "h100")
	require.NoError(t, err)
	require.Contains(t, text, "plan: plan.recompute=none plan.offload=false plan.offload_tensors=[")
	_, err = simOutput(t, "plan", shippedRun, "--tensors", "--hosts", "1x2")
	require.ErrorContains(t, err, "--tensors: it decides for the run file's own plan")
}

// TestPlanExplained: with --hosts, --explain says what the best plan's step is made of and what every other choice costs,
// as text; plans that predictions do not tell apart are counted, and on a machine that is no GPU's nothing is said of it.
func TestPlanExplained(t *testing.T) {
	t.Parallel()
	args := []string{"plan", shippedRun, "--hosts", "1x4", "train.global_batch=64", "--cluster", "h100"}
	out, err := simOutput(t, append(args, "--explain")...)
	require.NoError(t, err)
	require.Regexp(t, `the first takes [0-9.]+ .s to [0-9.]+ .s in eight of ten cases; which of the first \d+ is fastest cannot be told`, out)
	_, after, found := strings.Cut(out, "what another choice costs")
	require.True(t, found)
	for _, choice := range []string{"tp", "pp", "dp", "zero", "schedule", "micro-batch", "recompute"} {
		require.Regexp(t, `│ `+choice+` +│ .*│ \+\d+\.\d % +│ tp`, after)
	}
	require.Regexp(t, `of the first, a step with \d+ of its \d+ microbatches:\nrank \d.* launches of kernels`, after)
	_, err = simOutput(t, append(args, "--explain", "-o", "json")...)
	require.ErrorContains(t, err, "with --hosts it is text alone")
	out, err = simOutput(t, append(args[:len(args)-1], "cpu")...)
	require.NoError(t, err)
	require.NotContains(t, out, "cannot be told")
}

// TestSoftwareNamed: a prediction says of which software it is, with where steps lie, and what the cluster file says itself.
func TestSoftwareNamed(t *testing.T) {
	t.Parallel()
	out, err := simOutput(t, "sim", shippedRun, "--cluster", "h100", "--software", "torchtitan@2025-06,tp.overlap=products")
	require.NoError(t, err)
	require.Regexp(t, `^1f1b on h100 under torchtitan@2025-06,tp.overlap=products: step \S+ .s \(\S+ .s to \S+ .s in eight of ten\);`, out)
	out, err = simOutput(t, "sim", shippedRun, "--cluster", "h100", "-o", "json")
	require.NoError(t, err)
	var sum rehearsal.Summary
	require.NoError(t, json.Unmarshal([]byte(out), &sum))
	require.Equal(t, "lfactor", sum.Software)
	require.Less(t, sum.P10, sum.Step)
	require.Less(t, sum.Step, sum.P90)
	_, err = simOutput(t, "sim", shippedRun, "--software", "torchtitan@2020")
	require.ErrorContains(t, err, "of torchtitan there is no version 2020")
}
