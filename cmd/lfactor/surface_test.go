package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lfactor/lfactor/cmd/lfactor/clitest"
	"github.com/lfactor/lfactor/configs"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/dataset/mcap"
)

// leaves lists the commands without subcommands by their path below lfactor.
func leaves(c *cobra.Command, path string) (out []string) {
	for _, sub := range c.Commands() {
		name := strings.TrimSpace(path + " " + sub.Name())
		if sub.Runnable() && !sub.HasSubCommands() || sub.Name() == "sim" {
			out = append(out, name)
		}
		out = append(out, leaves(sub, name)...)
	}
	return
}

// jsonArgs has arguments for every command; "-" says why a command is left out, and "long " begins those
// that take long.
var jsonArgs = map[string]string{
	"bench kernels": "--rounds 1 --only swiglu", "bench peak": "", "bench plan": "long --runs 1",
	"bench sim": "long --runs 1", "bench suite": "long --runs 1 --only simulate",
	"bench growth": "--runs 1 --sizes 4 plan/microbatches",
	"bench encode": "--model vae --size 5x8x8 --times 1",
	"bench step":   "--layers 1 --hidden 64 --intermediate 64 --vocab 100 --seq 32 --batch 1 --steps 1",
	"calibrate":    "long ",
	"ckpt loong": "--load_platform mcore --save_platform huggingface --safetensors --load_ckpt_path ckpt " +
		"--save_ckpt_path hf3",
	"ckpt convert": "ckpt hf2", "ckpt diff": "ckpt hf", "ckpt ls": "ckpt", "ckpt prune": "ckpt --keep 3",
	"ckpt verify":         "ckpt",
	"attach":              "- it wants a cluster, see TestJobVerbs",
	"events":              "- it wants a cluster, see TestJobVerbs",
	"logs":                "- it wants a cluster, see TestJobVerbs",
	"ps":                  "- it wants a cluster, see TestJobVerbs",
	"stop":                "- it wants a cluster, see TestJobVerbs",
	"cluster add":         "- it wants a cluster, see TestClusterSSH",
	"cluster apply":       "- it wants a cluster, see TestClusterSSHApply",
	"cluster confined":    "- agents start it, see TestClusterSubmitter",
	"cluster agent":       "- it wants a cluster, see TestClusterSame",
	"cluster backup":      "- it wants a cluster, see TestClusterVerbs",
	"cluster check":       "- it wants a cluster, see TestClusterSSH",
	"cluster down":        "- it wants a cluster, see TestClusterSame",
	"cluster replace":     "- it wants a cluster, see TestClusterReplace",
	"cluster drain":       "- it wants a cluster, see TestClusterVerbs",
	"cluster head":        "- it wants a cluster, see TestClusterSame",
	"cluster install":     "- it wants a cluster, see TestClusterSSH",
	"cluster join":        "- it wants a cluster, see TestClusterHosts",
	"reference":           "- it writes a folder, see TestReference",
	"cluster manifest":    "- it writes YAML, see TestClusterManifest",
	"cluster alive":       "- it wants a cluster, see TestClusterKubernetes",
	"cluster logs":        "- it wants a cluster, see TestClusterVerbs",
	"cluster remove":      "- it wants a cluster, see TestClusterVerbs",
	"cluster restore":     "- it wants a cluster, see TestClusterVerbs",
	"cluster status":      "- it wants a cluster, see TestClusterSame",
	"cluster token":       "- it wants a cluster, see TestClusterTokens",
	"cluster uninstall":   "- it wants a cluster, see TestClusterSSH",
	"cluster up":          "- it wants a cluster, see TestClusterSame",
	"runs":                "--root .",
	"runs mark":           "run --tag x",
	"runs delete":         "- it removes what others here read, see TestNames of its package",
	"replay":              "- it wants a run of answers, see TestReplay",
	"serve":               "- it answers until it is stopped, see TestServe",
	"cluster user add":    "- it wants a cluster, see TestClusterUsers",
	"cluster user list":   "- it wants a cluster, see TestClusterUsers",
	"cluster user revoke": "- it wants a cluster, see TestClusterUsers",
	"config import":       "axolotl.yaml", "config check": "run.yaml", "config diff": "run.yaml other.yaml",
	"config explain": "plan.pp run.yaml", "config models": "", "config schema": "",
	"data bench": "text", "data blame": "run last",
	"data convert": "--output_dir shards --json_file a.jsonl --image_dir img --sample_type multi_mix_qa",
	"data fast":    "- it wants recordings, see TestScribeLearns",
	"data index":   "s.tar", "data ingest": "job.yaml", "data run": "recipe.yaml",
	"data reshard": "text --to resharded", "data room": "- it wants a follower, see TestFollowKilled",
	"data serve": "- it serves until it is stopped, see TestDataServe",
	"data lint":  "text", "data pack": "--input shards --output_dir packed --model model --max-tokens 256",
	"data robots": "bag.mcap --to robots",
	"data view":   "text", "data preview": "text", "data quarantine": "run", "data stat": "text",
	"data tokenizer": "text --to made --vocab 300",
	"data tokenize":  "--input text --hf-tokenizer-path tok --output-prefix ids",
	"demo":           "--steps 2 --dir demo",
	"hub get":        "- it wants a hub, see TestHub", "hub put": "- it wants a hub, see TestHub",
	"tables": "run", "ui": "- it answers until it is stopped, see cmd/lfactor/ui",
	"audit":  "run --steps 2",
	"doctor": "", "compare": "run run", "edges": "run", "eval": "run.yaml", "init": "new",
	"plan":   "run.yaml",
	"sample": "ckpt --prompt func --max 3", "sim": "run.yaml", "sim compare": "1f1b gpipe run.yaml",
	"sim diff":     "run/trace.json run.yaml",
	"sim denoiser": "denoiser.yaml --devices 4",
	"sim days":     "3 run.yaml",
	"sim rollouts": "--samplers 2 --staleness 0,1", "sim serve": "run.yaml --cluster h100 --requests 4",
	"sim encoder": "long --paced=false", "sim fidelity": "long --plans 1", "sim overlap": "long ",
	"sim predict": "- it wants a table of measured steps", "sim replay": "3 run.yaml",
	"stages": "stages.yaml", "train": "run.yaml", "version": "", "why": "- it wants a run that hangs",
	"completion bash": "- it writes a script", "completion fish": "- it writes a script",
	"completion powershell": "- it writes a script", "completion zsh": "- it writes a script",
	"help": "- it prints help",
}

// TestEveryCommandSpeaksJSON: with -o json stdout is JSON and nothing else, whatever the command.
func TestEveryCommandSpeaksJSON(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=4", "checkpoint.save_hf=true",
		"checkpoint.save_hf_path=hf", "data.split=[80,20,0]")
	require.Zero(t, code, out)
	yaml, err := os.ReadFile(filepath.Join(dir, "run.yaml"))
	require.NoError(t, err)
	for name, text := range map[string]string{"run.yaml": strings.Replace(string(yaml), "steps: 24",
		"steps: 6", 1), "other.yaml": strings.Replace(string(yaml), "pp: 2", "pp: 1", 1),
		"stages.yaml":  "run: run.yaml\ndir: staged\nstages: [{name: a, set: [train.steps=2]}, {name: b, set: [train.steps=2]}]\n",
		"axolotl.yaml": "base_model: model\ndatasets: [{path: a.jsonl}]\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name),
			[]byte(strings.Replace(text, "split: [90, 10, 0]", "split: [80, 20, 0]", 1)), 0o644))
	}
	ingestData(t, dir, 8)
	writeShard(t, filepath.Join(dir, "s.tar"), "a", "b")
	bag := mcap.NewWriter()
	for k := range int64(3) {
		bag.Floats("/action", k*1e8, []float64{float64(k)})
		bag.Floats("/observation/state", k*1e8, []float64{1})
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bag.mcap"), bag.Close(), 0o644))
	vae, err := os.ReadFile("../../stages/family/autoencoders/testdata/wan/config.json")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "vae"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vae", "config.json"), vae, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "denoiser.yaml"),
		[]byte("model: {name: wan/2.1-t2v-1.3b}\n"+
			"data: {paths: [none], seq_len: 16}\ndiffusion: {autoencoder: pixels, text_encoder: none, "+
			"sizes: [8x8]}\n"+
			"train: {global_batch: 8}\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "recipe.yaml"),
		[]byte("output: clean\ninputs: [text]\n"), 0o644))
	c := root()
	c.InitDefaultCompletionCmd()
	c.InitDefaultHelpCmd()
	for _, path := range leaves(c, "") {
		args, known := jsonArgs[path]
		require.True(t, known, "%s has no line in jsonArgs", path)
		args, slow := strings.CutPrefix(args, "long ")
		if strings.HasPrefix(args, "- ") || slow && !*long {
			t.Logf("left out: %s %s", path, strings.TrimPrefix(args, "- "))
			continue
		}
		all := append(append(strings.Fields(path), strings.Fields(args)...), "-o", "json")
		code, out, errs := streams(t, dir, "", all...)
		if path != "ckpt diff" { // 1 where they differ, of which the dtypes are one
			require.Zero(t, code, "%s: %s", path, errs)
		}
		var v any
		require.NoError(t, json.Unmarshal([]byte(out), &v), "%s: %q", path, out)
		code, _, errs = streams(t, dir, "", append(append(strings.Fields(path), strings.Fields(args)...),
			"-o", "xml")...)
		if path != "config schema" { // which is JSON always
			require.Equal(t, 2, code, "%s -o xml: %s", path, errs)
		}
	}
}

// TestStableNames: plan and sim have the names that docs/json.md promises, and they mean what it says.
func TestStableNames(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	read := func(args ...string) map[string]float64 {
		code, out, errs := streams(t, dir, "", append(args, "-o", "json")...)
		require.Zero(t, code, errs)
		var raw any
		require.NoError(t, json.Unmarshal([]byte(out), &raw))
		if list, ok := raw.([]any); ok {
			raw = list[0]
		}
		got := map[string]float64{}
		for _, name := range []string{"step_flops", "step_seconds", "mfu", "peak_bytes"} {
			v, ok := raw.(map[string]any)[name].(float64)
			require.True(t, ok, "%v: %s", args, name)
			require.Positive(t, v, "%v: %s", args, name)
			got[name] = v
		}
		return got
	}
	sim := read("sim", "run.yaml", "--cluster", "h100")
	plan := read("plan", "run.yaml", "--cluster", "h100")
	require.Equal(t, sim["step_flops"], plan["step_flops"])
	require.Equal(t, sim["step_seconds"], plan["step_seconds"])
	require.InEpsilon(t, sim["step_flops"]/sim["step_seconds"]/(4*989.4e12), sim["mfu"], 1e-9,
		"four ranks of 989.4 TFLOP/s")
	found := read("plan", "run.yaml", "--hosts", "1x4", "--cluster", "h100")
	require.InEpsilon(t, sim["step_flops"], found["step_flops"], 1e-4,
		"the same run, but for sums at borders of stages")
	doc, err := os.ReadFile("../../docs/json.md")
	require.NoError(t, err)
	for name := range sim {
		require.Contains(t, string(doc), "`"+name+"`")
	}
}

// TestExitCodesOfCommands: as the table in docs/json.md has them.
func TestExitCodesOfCommands(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=4", "checkpoint.save_hf=true",
		"checkpoint.save_hf_path=hf")
	require.Zero(t, code, out)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.yaml"),
		[]byte("model:\n  path: nowhere\ndata: {paths: [text]}\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "run2.yaml"),
		[]byte(strings.Replace(clitest.TinyYAML, "plan: {pp: 2,", "plan: {pp: 2, schedule: zigzag,",
			1)), 0o644))
	for _, c := range []struct {
		code int
		says string
		args string
	}{
		{2, "unknown command", "nonsense"}, {2, `did you mean "lint"`, "data lnit"},
		{2, "unknown command", "ckpt nonsense"}, {2, "accepts 1 arg", "ckpt ls"},
		{2, "required flag", "data convert"},
		{2, "unknown flag", "ckpt ls ckpt --nonsense"},
		{6, "nowhere", "ckpt verify nowhere"}, {6, "nowhere", "ckpt ls nowhere"},
		{6, "nowhere", "ckpt diff nowhere ckpt"},
		{6, "nowhere", "sample nowhere"}, {6, "nowhere", "ckpt convert nowhere out"}, {6, "nowhere",
			"ckpt prune nowhere"},
		{2, "--keep", "ckpt prune ckpt --keep -3"}, {2, "moe", "demo --moe --vlm"}, {6, "nowhere",
			"data blame nowhere 1"},
		{6, "nowhere", "why nowhere"}, {1, "no run is under way", "why run"}, {6, "nowhere",
			"edges nowhere"},
		{0, "equal", "ckpt diff ckpt ckpt"},
		{1, "embed_tokens", "ckpt diff ckpt/step-00000002 ckpt/step-00000004"},
		{2, "hf is not empty", "ckpt convert ckpt hf"}, {0, "wrote hf", "ckpt convert ckpt hf --overwrite"},
		{0, "wrote fresh", "ckpt convert ckpt fresh"},
		{2, "broken.yaml:2: model.path: nowhere/config.json", "train broken.yaml"},
		{2, "plan.schedule", "config check run.yaml plan.schedule=zigzag"},
		{2, "run2.yaml:9: plan.schedule: \"zigzag\"", "config check run2.yaml"},
		{2, "set device: cpu", "train run.yaml device=cuda checkpoint.dir=c9 log.dir=r9"},
		{2, "--chat excludes", "sample ckpt --chat hello --prompt there"},
	} {
		code, out := runIn(t, dir, nil, strings.Fields(c.args)...)
		require.Equal(t, c.code, code, "%s: %s", c.args, out)
		require.Contains(t, out, c.says, c.args)
		// builds with devices are advised where one is asked for, and nowhere else
		if !strings.Contains(c.args, "device=") {
			require.NotContains(t, out, "-tags", c.args)
		}
	}
}

// TestExplainSection lists the keys of a section, and of no other.
func TestExplainSection(t *testing.T) {
	t.Parallel()
	code, out, errs := streams(t, t.TempDir(), "", "config", "explain", "log")
	require.Zero(t, code, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, len(configs.Section("log")))
	for _, l := range lines {
		require.True(t, strings.HasPrefix(l, "log."), l)
	}
}

// TestCompletion completes keys, their values, and names to explain.
func TestCompletion(t *testing.T) {
	t.Parallel()
	for word, want := range map[string]string{
		"train run.yaml plan.sched":        "plan.schedule=\t",
		"plan run.yaml plan.schedule=zb-h": "plan.schedule=zb-h1\nplan.schedule=zb-h2\n",
		"sim run.yaml data.packing=":       "data.packing=true\ndata.packing=false\n",
		"config explain checkpoint.int":    "checkpoint.interval\t",
		"config check optimizer.kind=":     "optimizer.kind=adamw\n",
	} {
		code, out, errs := streams(t, t.TempDir(), "",
			append([]string{"__complete"}, strings.Fields(word)...)...)
		require.Zero(t, code, errs)
		require.Contains(t, out, want, word)
	}
}

// TestCompletionOfEveryVerb: each command completes its flags, all that its help has.
func TestCompletionOfEveryVerb(t *testing.T) {
	c := root()
	for _, verb := range leaves(c, "") {
		at, _, err := c.Find(strings.Fields(verb))
		require.NoError(t, err)
		code, out := carriedOut(t, append(append([]string{"__complete"}, strings.Fields(verb)...), "--")...)
		require.Zero(t, code, "%s: %s", verb, out)
		asks := func(f *pflag.Flag) bool { return len(f.Annotations[cobra.BashCompOneRequiredFlag]) > 0 }
		first := false // flags that it must have are completed before others
		at.LocalFlags().VisitAll(func(f *pflag.Flag) { first = first || asks(f) })
		at.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && (asks(f) || !first) {
				require.Contains(t, out, "--"+f.Name, verb)
			}
		})
	}
}

// TestDemoWithFewSteps: a short demo does not fail, though the model has not learnt what the demo claims.
func TestDemoWithFewSteps(t *testing.T) {
	t.Parallel()
	code, out, errs := streams(t, t.TempDir(), "", "demo", "--steps", "3")
	require.Zero(t, code, errs)
	require.Contains(t, out,
		"after 3 steps the model does not beat the bigram model yet; 600 steps are enough")
}

// TestResumedRunTells: a run that falls back to an older checkpoint saves the steps again that were damaged;
// one that is extended says what becomes of its learning rate; and the curve shows the whole run.
func TestResumedRunTells(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "train.steps=4")
	require.Zero(t, code, out)
	shards, err := filepath.Glob(filepath.Join(dir, "ckpt", "step-00000004", "*.safetensors"))
	require.NoError(t, err)
	require.NotEmpty(t, shards)
	require.NoError(t, os.Truncate(shards[0], 100))
	code, out = runIn(t, dir, nil, "train", "run.yaml", "train.steps=4")
	require.Zero(t, code, out)
	require.Contains(t, out, "! checkpoint:")
	require.Contains(t, out, "from    step 2 of")
	require.Contains(t, out, "saved step 4: durable")
	code, out = runIn(t, dir, nil, "ckpt", "verify", "ckpt")
	require.Zero(t, code, out)

	code, out = runIn(t, dir, nil, "train", "run.yaml", "train.steps=40")
	require.Zero(t, code, out)
	require.Contains(t, out, "changed train.steps: 4 → 40")
	require.Regexp(t, `rate    step 5 takes a learning rate of 0\.000\d+; the checkpoint's configuration would take 0 \(cosine until step 4, now cosine until step 40\)`, out)
	svg, err := os.ReadFile(filepath.Join(dir, "run", "loss.svg"))
	require.NoError(t, err)
	raw, _, _ := strings.Cut(strings.SplitN(string(svg), `stroke="#9bbbe3"`, 2)[1], `"/>`)
	require.Len(t, strings.Fields(raw[strings.Index(raw, `points="`)+8:]), 40,
		"the steps before each resume are in it")
	for _, tick := range []string{`text-anchor="middle">5<`, `text-anchor="middle">40<`,
		"loss, nats a token", `text-anchor="middle">step<`} {
		require.Contains(t, string(svg), tick)
	}
}

// TestSampleChat asks a model in its own template: the answer comes back alone, and each turn is told those before it.
func TestSampleChat(t *testing.T) {
	t.Parallel()
	dir := tinyRun(t)
	code, out := runIn(t, dir, nil, "train", "run.yaml", "-q", "train.steps=2")
	require.Zero(t, code, out)
	conf := filepath.Join(dir, "tok", "tokenizer_config.json")
	code, _, errs := streams(t, dir, "", "sample", "ckpt", "--chat", "hello", "--max", "4")
	require.Equal(t, 2, code, errs)
	require.Contains(t, errs, "no chat template")
	template := `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
	text, err := json.Marshal(map[string]any{"chat_template": template})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(conf, text, 0o644))
	ask := func(stdin string, args ...string) (turns []struct{ Prompt, Text string }) {
		code, out, errs := streams(t, dir, stdin, append([]string{"sample", "ckpt", "--temperature", "1.5",
			"--top-p", "1", "--seed", "3", "--max", "24", "-o", "json"}, args...)...)
		require.Zero(t, code, errs)
		require.NoError(t, json.Unmarshal([]byte(out), &turns), out)
		return
	}
	one := ask("", "--chat", "hello")
	require.Len(t, one, 1)
	code, out, errs = streams(t, dir, "", "sample", "ckpt", "--temperature", "1.5", "--top-p", "1", "--seed",
		"3", "--max", "24", "--prompt", "<user>hello<assistant>", "-o", "json")
	require.Zero(t, code, errs)
	var plain struct{ Text string }
	require.NoError(t, json.Unmarshal([]byte(out), &plain))
	require.Equal(t, plain.Text, one[0].Text, "the template writes what one would type by hand")
	two := ask("hello\nmore\n", "--chat", "-")
	require.Len(t, two, 2)
	require.Equal(t, one[0].Text, two[0].Text)
	code, out, errs = streams(t, dir, "", "sample", "ckpt", "--temperature", "1.5", "--top-p", "1", "--seed",
		"3", "--max", "24", "--prompt", fmt.Sprintf("<user>hello<assistant>%s<user>more<assistant>",
			one[0].Text), "-o", "json")
	require.Zero(t, code, errs)
	require.NoError(t, json.Unmarshal([]byte(out), &plain))
	require.Equal(t, plain.Text, two[1].Text, "the second turn is told the first and its answer")
	code, out, errs = streams(t, dir, "", "sample", "ckpt", "--temperature", "1.5", "--top-p", "1", "--seed",
		"3", "--max", "24", "--chat", "hello")
	require.Zero(t, code, errs)
	require.Equal(t, one[0].Text+"\n", out)
}
