package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/actors/run"
	"github.com/lfactor/lfactor/cmd/lfactor/demo"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/topology/machine"
)

// residentBeyond bounds what a process of one rank holds beyond the tensors that are counted: its program, the data, Go's
// heap and the scratch of its kernels, without copies for recovery and for saves; and a third more where it decodes
// pictures, whose garbage Go collects when it likes. docs/simulation.md has the numbers.
const residentBeyond = 192 << 20

// residentCase is a run by its demo and settings, whose state is large beside that bound where it can be.
type residentCase struct {
	name, demo string
	quick      bool // of the ordinary tier too
	args       []string
}

var residentWide = []string{"model.overrides.hidden_size=512", "model.overrides.intermediate_size=1536",
	"model.overrides.num_hidden_layers=6", "model.overrides.num_attention_heads=8",
	"model.overrides.num_key_value_heads=4", "model.overrides.head_dim=64"}

var residentCases = []residentCase{
	{"float32", "", true, residentWide},
	{"bf16", "", true, append([]string{"train.precision=bf16"}, residentWide...)},
	{"fp16", "", false, append([]string{"train.precision=fp16"}, residentWide...)},
	{"mxfp8", "", false, append([]string{"train.precision=bf16", "train.low_precision=mxfp8"}, residentWide...)},
	{"nvfp4", "", true, append([]string{"train.precision=bf16", "train.low_precision=nvfp4"}, residentWide...)},
	{"block", "", false, append([]string{"train.precision=bf16", "train.low_precision=block"}, residentWide...)},
	{"delayed", "", false, append([]string{"train.precision=bf16", "train.low_precision=delayed"}, residentWide...)},
	{"experts", "--moe", false, []string{"plan.ep=1", "model.overrides.hidden_size=256",
		"model.overrides.moe_intermediate_size=384", "model.overrides.num_hidden_layers=6"}},
	{"pictures and texts", "--vlm", false, []string{"plan.encoder.over=first", "plan.encoder.ranks=0",
		"model.overrides.hidden_size=256", "model.overrides.intermediate_size=1024", "model.overrides.num_hidden_layers=6",
		"model.overrides.head_dim=64", "model.overrides.rope_scaling={rope_type: mrope, mrope_section: [8, 12, 12]}"}},
	{"diffusion", "--image", false, nil},
	{"policy", "--robot", false, nil},
}

// residentDemo is the run file of a demo, written anew without what is saved.
func residentDemo(t *testing.T, kind string) string {
	t.Helper()
	dir := residentTexts(t)
	if kind != "" {
		out, err := exec.Command(built(t), "demo", kind, "--steps", "2", "--dir", filepath.Join(dir, "demo")).CombinedOutput()
		require.NoError(t, err, "%s", out)
		file := filepath.Join(dir, "demo", "run", "run.yaml")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		text = regexp.MustCompile(`(?m)^checkpoint:\n( .*\n)+`).ReplaceAll(text, nil)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		return file
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run.yaml"), []byte(fmt.Sprintf("model: {name: llama/3.2-1b, "+
		"init: random, overrides: {vocab_size: 400, rope_scaling: none}}\ndata: {kind: text, paths: [%q], tokenizer: %q, "+
		"seq_len: 128, split: [1, 0, 0]}\ntrain: {global_batch: 8, micro_batch: 2}\n", filepath.Join(dir, "text"),
		filepath.Join(dir, "tok"))), 0o600))
	return filepath.Join(dir, "run.yaml")
}

// residentTexts is a folder of texts and a tokenizer.
func residentTexts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	_, err := demo.GoSources(filepath.Join(dir, "text"), 20)
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "text", "*.txt"))
	require.NoError(t, err)
	require.NoError(t, demo.TrainTokenizer(filepath.Join(dir, "tok"), files, 400))
	return dir
}

// TestResident: a process holds what is counted of its tensors and a bound, in every precision and kind of model. The
// system says what the most was, whatever else the machine does.
func TestResident(t *testing.T) {
	cases := residentCases
	if !*long {
		cases = slices.DeleteFunc(slices.Clone(cases), func(c residentCase) bool { return !c.quick })
		t.Logf("%d of %d kinds: add -long", len(cases), len(residentCases))
	}
	files := map[string]string{}
	for _, c := range cases {
		if files[c.demo] == "" {
			files[c.demo] = residentDemo(t, c.demo)
		}
		dir := t.TempDir()
		child := exec.Command(os.Args[0], "-test.run=^TestResidentChild$")
		args := append([]string{"plan.pp=1", "plan.dp=1", "plan.zero=0", "plan.threads=1", "train.steps=3", "train.buddy=off",
			"train.eval_interval=0", "log.dir=" + dir + "/run"}, c.args...)
		child.Env = append(os.Environ(), residentFile+"="+files[c.demo], residentArgs+"="+strings.Join(args, "\n"))
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s: %s", c.name, out)
		found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(out)
		require.NotNil(t, found, "%s: %s", c.name, out)
		held, err := strconv.ParseInt(string(found[1]), 10, 64)
		require.NoError(t, err)
		held <<= 10
		counted := 0.0
		for _, m := range metrics(t, dir) {
			counted = max(counted, m.PeakBytes)
		}
		t.Logf("%s: %d MiB resident, %.0f counted", c.name, held>>20, counted/(1<<20))
		bound := residentBeyond
		if c.demo != "" && c.demo != "--moe" { // pictures
			bound += bound / 3
		}
		require.LessOrEqual(t, float64(held), counted+float64(bound), c.name)
	}
}

// Settings of a process that trains alone.
const residentFile, residentArgs = "LFACTOR_TEST_RESIDENT", "LFACTOR_TEST_RESIDENT_ARGS"

// TestResidentChild is that process: it trains, and says what the system says of it. What a parent holds is not in that.
func TestResidentChild(t *testing.T) {
	file := os.Getenv(residentFile)
	if file == "" {
		t.Skip("it is a part of TestResident")
	}
	cfg, err := configs.Load(configs.Request{File: file, Args: strings.Split(os.Getenv(residentArgs), "\n")})
	require.NoError(t, err)
	t.Setenv("GOGC", "") // tests collect seldom
	debug.SetGCPercent(100)
	machine.TightHeap() // as lfactor train does
	require.NoError(t, run.Train(t.Context(), cfg, run.Options{}))
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	fmt.Println(string(text))
}
