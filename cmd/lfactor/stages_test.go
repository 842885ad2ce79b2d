package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/cmd/lfactor/demo"
)

// oneVision copies docs/examples/onevision to a directory with small data, and gives the arguments that
// make its model small.
func oneVision(t *testing.T, dir string) (args []string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, set := range []string{"alignment", "midtraining", "instruct"} {
		_, err := demo.WriteScenes(in("data/"+set), 60)
		require.NoError(t, err)
	}
	ids, err := demo.SceneTokenizer(in("tokenizer"))
	require.NoError(t, err)
	require.NoError(t, os.CopyFS(in("docs/examples/onevision"), os.DirFS("../../docs/examples/onevision")))
	processor, err := os.ReadFile(in("tokenizer/preprocessor_config.json"))
	require.NoError(t, err)
	p := map[string]any{}
	require.NoError(t, json.Unmarshal(processor, &p))
	p["temporal_patch_size"] = 1 // as RICE's
	processor, err = json.Marshal(p)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(in("tokenizer/preprocessor_config.json"), processor, 0o644))
	file := in("docs/examples/onevision/stages.yaml")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	kept := regexp.MustCompile(`(?m)^ *- model\..*\n`).ReplaceAll(text, nil) // the models that it begins with
	require.NoError(t, os.WriteFile(file, kept, 0o644))
	args = []string{"docs/examples/onevision/stages.yaml", "model.init=random",
		"data.tokenizer=tokenizer", "data.processor=tokenizer", "data.seq_len=256",
		"data.sample_type=chat_mix",
		"train.global_batch=4", "train.micro_batch=2", "train.precision=fp32", "plan.dp=1", "plan.threads=1",
		"plan.zero=0",
		"plan.recompute=none", "checkpoint.interval=3", "train.steps=6"}
	for key, v := range map[string]any{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
		"num_key_value_heads": 2,
		"head_dim":            16, "intermediate_size": 128, "vocab_size": ids["vocab"], "vision.depth": 2,
		"vision.hidden_size":       32,
		"vision.intermediate_size": 64, "vision.num_heads": 2,
		"vision.image_token_id": ids["<|image_pad|>"]} {
		args = append(args, fmt.Sprintf("model.overrides.%s=%v", key, v))
	}
	return args
}

// switches are the kinds and stages of stages.jsonl.
func switches(t *testing.T, dir string) (out []string) {
	text, err := os.ReadFile(filepath.Join(dir, "stages.jsonl"))
	require.NoError(t, err)
	for _, l := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var e struct{ Stage, Kind string }
		require.NoError(t, json.Unmarshal([]byte(l), &e))
		out = append(out, e.Kind+" "+e.Stage)
	}
	return out
}

var threeStages = []string{"begin alignment", "end alignment", "begin knowledge", "end knowledge",
	"begin instruction", "end instruction"}

// TestStages: LLaVA-OneVision's stages train one from the other, and tell of each switch; a job that is killed at a
// switch, or anywhere, goes on to the same bits.
func TestStages(t *testing.T) {
	t.Parallel()
	if !*long {
		t.Skip("left out without -long: three stages of a small LLaVA-OneVision, four times")
	}
	want := ""
	for _, kill := range []string{"", "from onevision/alignment/export", "step 2/6",
		"from onevision/knowledge/export"} {
		dir := t.TempDir()
		args := append([]string{"stages"}, append(oneVision(t, dir), "train.log_interval=1")...)
		if kill != "" {
			killedAt(t, dir, kill, args)
		}
		code, out := runIn(t, dir, nil, args...)
		require.Zero(t, code, out)
		require.Equal(t, threeStages, switches(t, filepath.Join(dir, "onevision")), "%s", kill)
		text, err := os.ReadFile(filepath.Join(dir, "onevision/knowledge/run/log.jsonl"))
		require.NoError(t, err)
		require.Contains(t, string(text), "stage   2 of 3: knowledge, from onevision/alignment/export")
		weights, err := filepath.Glob(filepath.Join(dir, "onevision/instruction/export/*.safetensors"))
		require.NoError(t, err)
		require.Len(t, weights, 1)
		b, err := os.ReadFile(weights[0])
		require.NoError(t, err)
		if want == "" {
			want = string(b)
		}
		require.True(t, want == string(b), "%s: other weights", kill)
		code, out = runIn(t, dir, nil, args...)
		require.Zero(t, code, out)
		require.Equal(t, 3, strings.Count(out, ": over"), out)
	}
}

// killedAt runs lfactor until it says something, and kills it then.
func killedAt(t *testing.T, dir, text string, args []string) {
	t.Helper()
	c := exec.Command(built(t), args...)
	c.Dir = dir
	out, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	var said strings.Builder
	for buf := make([]byte, 256); !strings.Contains(said.String(), text); {
		n, err := out.Read(buf)
		said.Write(buf[:n])
		require.NoError(t, err, said.String())
	}
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
}

// TestStagesRefused: what is wrong with any stage is said before the first one trains.
func TestStagesRefused(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	const two = "run: run.yaml\ndir: d\nstages: [{name: a}, {name: b}]\n"
	last := func(set string) string { return strings.Replace(two, "name: b", "name: b, set: ["+set+"]", 1) }
	for _, c := range []struct{ text, more, want string }{
		{"", "", "is empty"},
		{two + "---\njunk: 1\n", "", "more than one document"},
		{two + "--- 1\n", "", "more than one document"},
		{"run: run.yaml\nstages: [{name: a}]\n", "", "dir, a folder"},
		{"run: run.yaml\ndir: d\nstages: [{name: a}, {name: A}]\n", "", "a name of its own"},
		{"run: run.yaml\ndir: d\nstages: [{name: Stages.jsonl}]\n", "", "a name of its own"},
		{"run: run.yaml\ndir: d\nstages: [{name: ../a}]\n", "", "a name of its own"},
		{"run: run.yaml\ndir: d\nstage: []\n", "", "stage not found"},
		{last("--detach"), "", "want key=value"},
		{last("train.step=3"), "", "stage b: "},
		{two, "checkpoint.dir=c", "stage a: checkpoint.dir=c: lfactor stages sets it itself, to d/a/checkpoints"},
		{two, "checkpoint.save_hf=false", "stage a: checkpoint.save_hf=false"},
		{last("+checkpoint.save_hf_path=e"), "", "stage b: checkpoint.save_hf_path=e"},
		{last("log.dir=l"), "", "stage b: log.dir=l"},
		{last("checkpoint.load=e"), "", "stage b: checkpoint.load=e"},
		{last("model.init=random"), "", "stage b: model.init=random"},
		{last("lora.rank=4"), "", "stage b: lora.rank=4"},
		{last("model.overrides.hidden_size=64"), "", "stage b has another model than a"},
		{last("model.overrides.num_hidden_layers=2"), "", "is not there, and was"},
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "s.yaml"), []byte(c.text), 0o644))
		code, out := runIn(t, dir, nil, append([]string{"stages", "s.yaml"}, strings.Fields(c.more)...)...)
		require.Equal(t, 2, code, "%s%s%s", c.text, c.more, out)
		require.Contains(t, out, c.want)
		require.NoDirExists(t, filepath.Join(dir, "d"))
	}
}

// TestStagesOver: what is over stays, and is said, in every form; what has begun from something else than
// the file says now is refused.
func TestStagesOver(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	in := func(name string) string { return filepath.Join(dir, "d", name) }
	log := ""
	for _, l := range []string{"a begin the run file's start", "a end ", "b begin d/a/export", "b end "} {
		f := strings.SplitN(l, " ", 3)
		log += fmt.Sprintf(`{"stage": %q, "kind": %q, "from": %q, "set": "0"}`+"\n", f[0], f[1], f[2])
	}
	fresh := func() {
		require.NoError(t, os.RemoveAll(in("")))
		for _, s := range []string{"a", "b"} {
			require.NoError(t, os.MkdirAll(in(s+"/export"), 0o755))
			require.NoError(t, os.WriteFile(in(s+"/export/config.json"), nil, 0o644))
		}
		require.NoError(t, os.WriteFile(in("stages.jsonl"), []byte(log), 0o644))
	}
	stages := func(want int, names string, more ...string) string {
		t.Helper()
		text := "run: run.yaml\ndir: d\nstages: [{name: " + strings.ReplaceAll(names, " ",
			"}, {name: ") + "}]\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "s.yaml"), []byte(text), 0o644))
		code, out := runIn(t, dir, nil, append([]string{"stages", "s.yaml"}, more...)...)
		require.Equal(t, want, code, out)
		return out
	}
	fresh()
	for _, form := range []string{"json", "jsonl"} {
		require.Contains(t, stages(0, "a b", "-o", form),
			`{"stage":"b","over":true,"from":"d/a/export","export":"d/b/export"}`)
	}
	require.Contains(t, stages(0, "a b"), "2 of 2: b, from d/a/export: over, with other settings")
	require.Contains(t, stages(2, "a x b"),
		"stage b began from d/a/export, and would now begin from d/x/export")
	require.Contains(t, stages(2, "b a"), "stage a began from the run file's start")
	require.NoError(t, os.RemoveAll(in("a")))
	require.Contains(t, stages(0, "a b"), "its export is gone, and b, which began from it, is over")
	require.NoError(t, os.RemoveAll(in("b/export")))
	require.Contains(t, stages(2, "a b"), "stage b began from d/a/export, which is to be trained again")
	fresh()
	require.NoError(t, os.RemoveAll(in("b"))) // b is not over, and begins from what is in a's export: nothing
	require.Contains(t, stages(2, "a b"), "stage b, from d/a/export: ")
	require.Contains(t, strings.Join(switches(t, in("")), ", "), "end b, begin b")
}
