package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/cli"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/sim"
	"github.com/lfactor/lfactor/sim/fidelity"
	"github.com/lfactor/lfactor/sim/rehearsal"
)

var printing sync.Mutex // one command line at a time has the process's stdout

// simOutput runs a command line in this process and returns what it printed.
func simOutput(t *testing.T, args ...string) (string, error) {
	printing.Lock()
	defer printing.Unlock()
	old := os.Stdout
	r, w, err := os.Pipe()
	require.NoError(t, err)
	os.Stdout = w
	text := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		text <- string(b)
	}()
	c := root()
	c.SetArgs(args)
	err = c.Execute()
	w.Close()
	os.Stdout = old
	return <-text, err
}

const shippedRun = "../../configs/runs/tiny.yaml"

func TestSimCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	svg, trace, page := filepath.Join(dir, "a.svg"), filepath.Join(dir, "a.json"),
		filepath.Join(dir, "a.html")
	out, err := simOutput(t, "sim", shippedRun, "--cluster", "h100", "-o", "json", "--svg", svg, "--trace",
		trace, "--html", page)
	require.NoError(t, err)
	var s rehearsal.Summary
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.Equal(t, "h100", s.Cluster)
	require.Len(t, s.Ranks, 2)
	require.Greater(t, s.Step, 0.0)
	require.Greater(t, s.BubbleMakespan, 0.0)
	again, err := simOutput(t, "sim", shippedRun, "--cluster", "h100", "-o", "json")
	require.NoError(t, err)
	require.Equal(t, out, again)
	sends, err := simOutput(t, "sim", shippedRun, "--cluster", "h100", "-o", "json", "--collective", "send")
	require.NoError(t, err)
	require.NotEqual(t, out, sends)
	waits, err := simOutput(t, "sim", shippedRun, "--cluster", "h100", "-o", "json", "--sends", "wait")
	require.NoError(t, err)
	var w rehearsal.Summary
	require.NoError(t, json.Unmarshal([]byte(waits), &w))
	require.Greater(t, w.Step, s.Step)
	_, err = simOutput(t, "sim", shippedRun, "--sends", "late")
	require.ErrorContains(t, err, "--sends late: want beside or wait")
	var spans []map[string]any
	text, err := os.ReadFile(trace)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &spans))
	require.Greater(t, len(spans), 20)
	for _, f := range []string{svg, page} {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.Contains(t, string(text), "</svg>")
	}
}

// TestSimShortSteps: what a loader reads costs by its bytes, so that steps of less than a millisecond differ.
func TestSimShortSteps(t *testing.T) {
	t.Parallel()
	step := func(layers string) float64 {
		out, err := simOutput(t, "sim", shippedRun, "plan.pp=1", "train.global_batch=1", "--cluster", "h100",
			"model.overrides.num_hidden_layers="+layers, "-o", "json")
		require.NoError(t, err)
		var s rehearsal.Summary
		require.NoError(t, json.Unmarshal([]byte(out), &s))
		require.GreaterOrEqual(t, s.Step, s.Ranks[0].Busy+s.Ranks[0].Update)
		return s.Step
	}
	require.Less(t, step("1"), step("2"))
	require.Less(t, step("2"), 0.001)
}

func TestSimSchedulesAndFaults(t *testing.T) {
	t.Parallel()
	out, err := simOutput(t, "sim", "compare", "1f1b", "zb-2p", "zb-v", "dualpipe", shippedRun)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(out, "zb-"))
	require.Contains(t, out, "two copies of the model")
	out, err = simOutput(t, "sim", shippedRun, "--seeds", "10", "--faults",
		"straggler,late-loader,crash,lost-message")
	require.NoError(t, err)
	require.Contains(t, out, "10 seeds, each twice, no difference")
	_, err = simOutput(t, "sim", "replay", "1", shippedRun, "--faults", "crash")
	require.ErrorContains(t, err, "has crashed")
	_, err = simOutput(t, "sim", shippedRun, "plan.memory=2MiB")
	require.ErrorContains(t, err, "out of memory")
	require.Equal(t, exit.Fit, cli.ExitCode(err))
}

// TestSimDays: a week has its figures, and of a machine whose hosts have a price and a power also dollars and energy.
func TestSimDays(t *testing.T) {
	t.Parallel()
	text, err := configs.ClusterFile("h100")
	require.NoError(t, err)
	priced := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(priced, []byte(strings.Replace(string(text), "  copy:", "  price: 20\n  power: 10\n  copy:", 1)),
		0o600))
	out, err := simOutput(t, "sim", "days", "7", shippedRun, "--cluster", "h100", "--mtbf", "12h", "--spares", "1")
	require.NoError(t, err)
	require.Contains(t, out, "Daly")
	require.NotContains(t, out, "dollars")
	out, err = simOutput(t, "sim", "days", "7", shippedRun, "--cluster", priced, "--spares", "1")
	require.NoError(t, err)
	require.Contains(t, out, "6720 dollars\n3360 kWh\n") // two hosts
}

func TestSimBadInput(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("name: x\ndevice:\n  flops: -1 TFLOP/s\n"), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"sim", shippedRun, "--cluster", bad}, bad + ":3: device.flops: -1 must be greater than 0"},
		{[]string{"sim", shippedRun, "--cluster", "h1000"}, "no machine that comes with lfactor"},
		{[]string{"sim", shippedRun, "--schedule", "dualpipev", "train.global_batch=2"},
			"two microbatches a rank"},
		{[]string{"sim", shippedRun, "--faults", "gremlins"}, "no such fault"},
		{[]string{"sim", shippedRun, "--steps", "NaN"}, "want a number"},
		{[]string{"sim", "--cluster", "cpu"}, "want a run file"},
		{[]string{"sim", "predict"}, "want --calibration"},
		{[]string{"sim", shippedRun, "--faults", "crash"}, "--faults has no effect"},
		{[]string{"sim", "days", "some", shippedRun}, "want a number of days"},
		{[]string{"sim", "days", "3", shippedRun, "--mtbf", "often"}, "want a time"},
		{[]string{"sim", "days", "3", shippedRun, "--away", "2"}, "want a number"},
		{[]string{"sim", "days", "3", shippedRun, "--cluster", "h100", "--hosts", "7"}, "set plan.dp"},
		{[]string{"sim", shippedRun, "--shrink"}, "--shrink has no effect"},
		{[]string{"sim", shippedRun, "--seeds", "2", "--svg", bad}, "--svg has no effect"},
		{[]string{"sim", "replay", "7", shippedRun, "--seeds", "2"}, "--seeds has no effect"},
		{[]string{"sim", "compare", "1f1b", "gpipe", "run.yaml", "--explain"}, "explains one schedule"},
		{[]string{"plan", "run.yaml", "--explain", "--program"},
			"explains a step of the run file's own plan"},
		{[]string{"plan", shippedRun, "--explain", "--hosts", "1", "-o", "json"},
			"with --hosts it is text alone"},
		{[]string{"sim", "predict", "--calibration", bad, "--folds", "2"}, "column is missing"},
	} {
		_, err := simOutput(t, c.args...)
		require.ErrorContains(t, err, c.want)
		require.Equal(t, exit.Usage, cli.ExitCode(err), "%v: %v", c.args, err)
	}
}

// TestSimSeedsDocumented: the page on the simulator shows what its run of many seeds prints, names every
// fault, and the command takes each.
func TestSimSeedsDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/simulation.md")
	require.NoError(t, err)
	_, text, _ := strings.Cut(string(page), "$ lfactor sim configs/runs/tiny.yaml plan.dp=2 --seeds ")
	line, text, _ := strings.Cut(text, "\n")
	want, _, _ := strings.Cut(text, "\n")
	require.Contains(t, want, "hash of all events")
	args := append([]string{"sim", shippedRun, "plan.dp=2", "--seeds"}, strings.Fields(line)...)
	out, err := simOutput(t, args...)
	require.NoError(t, err)
	require.Equal(t, want, strings.TrimSpace(out))
	for _, name := range sim.FaultNames() {
		require.Contains(t, string(page), "`"+name+"`")
		_, err := simOutput(t, "sim", shippedRun, "plan.dp=2", "--seeds", "40", "--faults", name)
		require.NoError(t, err, name)
	}
}

// TestSimShrink: a seed that fails is brought down to at most 30 events that fail in the same way, and they
// are listed; a rank that dies and comes back is not a failure.
func TestSimShrink(t *testing.T) {
	t.Parallel()
	for _, seed := range []string{"2", "9"} {
		out, err := simOutput(t, "sim", "replay", seed, shippedRun, "plan.dp=2", "--shrink", "--faults",
			"crash,cut-link,lost-message")
		require.ErrorContains(t, err, "waits for ever")
		require.Contains(t, out, "fault:")
		require.LessOrEqual(t, strings.Count(out, " ns  "), 30, out)
		require.Greater(t, strings.Count(out, " ns  "), 5)
	}
	out, err := simOutput(t, "sim", "replay", "9", shippedRun, "plan.dp=2", "--shrink", "--faults",
		"crash-restart,duplicate-message")
	require.NoError(t, err)
	require.Contains(t, out, "ends well")
}

// TestSimProgram simulates a table in PyTorch's notation, and names rank and action of what is wrong in one.
func TestSimProgram(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.csv")
	args := []string{"sim", shippedRun, "--program", file, "--cluster", "h100", "train.global_batch=4",
		"train.micro_batch=2", "-o", "json"}
	run := func(text string, more ...string) (string, error) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return simOutput(t, append(append([]string{}, args...), more...)...)
	}
	out,
		err := run("0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1RECV_F1,1SEND_B0,1F1,1B1,1SEND_B1\n")
	require.NoError(t, err)
	var s, same rehearsal.Summary
	require.NoError(t, json.Unmarshal([]byte(out), &s))
	require.Equal(t, file, s.Schedule)
	out, err = simOutput(t, "sim", shippedRun, "--cluster", "h100", "train.global_batch=4",
		"train.micro_batch=2", "-o", "json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(out), &same))
	require.Equal(t, same.Step, s.Step, "the table is that of 1F1B")
	for text, want := range map[string]string{
		"0F0,0B0\n1F0,1B0,1F1,1B1\n":                                                                                 "p.csv:1: rank 0 action 2: 0F1 is missing",
		"0F0,0F1,0F0,0B0,0B1\n1F0,1B0,1F1,1B1\n":                                                                     "p.csv:1: rank 0 action 2: 0F0 runs twice",
		"0F0,0SEND_F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n":                                                                "p.csv:1: rank 0 action 5: 0SEND_F1 is missing",
		"0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_F0,1F1,1B1\n":                   "p.csv:2: rank 1 action 3: 1SEND_F0 is a message that",
		"0F0,0SEND_F0,0F1,0RECV_B0,0SEND_F1,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n": "p.csv:1: rank 0 action 3: 0RECV_B0 waits for ever under blocking sends",
		"0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n":                                                                         "waits for ever: rank 0 at 0B0 waits for 1I0 of rank 1",
		"0F0,0Q1\n":                                                                                                  "p.csv: rank 0 cell 1",
		"0F0,0B0\n1F0,1B0\n":                                                                                         "the program has 2 ranks, 2 stages and 1 microbatches, the plan 2, 2 and 2",
	} {
		_, err := run(text)
		require.ErrorContains(t, err, want)
		require.Equal(t, exit.Usage, cli.ExitCode(err))
	}
}

// TestSimEncoder: on 32 simulated devices each way of sharing out the encoder's work is faster than the one before it,
// and with more microbatches than replicas filling the pipeline's waits is faster than encoding round by round.
func TestSimEncoder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text, err := simOutput(t, "sim", "encoder", "--paced=false", "--timelines", dir, "-o", "json")
	require.NoError(t, err)
	var res fidelity.EncoderResult
	require.NoError(t, json.Unmarshal([]byte(text), &res))
	require.Len(t, res.Simulated, len(fidelity.EncoderLayouts))
	for i, s := range res.Simulated[1:] {
		require.Less(t, s.Step, res.Simulated[i].Step, "%s", s.Layout)
	}
	files, err := filepath.Glob(filepath.Join(dir, "encoder-*.svg"))
	require.NoError(t, err)
	require.Len(t, files, len(fidelity.EncoderLayouts))
	_, err = simOutput(t, "sim", "encoder", "--microbatches", "0")
	require.ErrorContains(t, err, "--microbatches 0: want at least 1")
}
