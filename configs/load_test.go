package configs

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "write what the cases in testdata/load give as what they want")

// TestLoad runs the cases in testdata/load. Each is a txtar archive: run.yaml and other files, args (one argument a
// line), env, show (keys whose value and origin to print), and want: the faults, or the notices and the values.
func TestLoad(t *testing.T) {
	cases, err := filepath.Glob("testdata/load/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, cases)
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			file, err := filepath.Abs(file)
			require.NoError(t, err)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			ar := txtar.Parse(text)
			require.NotEmpty(t, ar.Comment, "a case says why it exists")
			got := runCase(t, ar)
			if *rewrite {
				setFile(ar, "want", got)
				require.NoError(t, os.WriteFile(file, txtar.Format(ar), 0o644))
			}
			require.Equal(t, getFile(ar, "want"), got)
		})
	}
}

func getFile(ar *txtar.Archive, name string) string {
	for _, f := range ar.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

func setFile(ar *txtar.Archive, name, data string) {
	for i := range ar.Files {
		if ar.Files[i].Name == name {
			ar.Files[i].Data = []byte(data)
			return
		}
	}
	ar.Files = append(ar.Files, txtar.File{Name: name, Data: []byte(data)})
}

func runCase(t *testing.T, ar *txtar.Archive) string {
	t.Chdir(t.TempDir())
	req := Request{}
	for _, f := range ar.Files {
		switch f.Name {
		case "args":
			req.Args = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		case "env", "show", "want":
		default:
			require.NoError(t, os.MkdirAll(filepath.Dir(f.Name), 0o755))
			require.NoError(t, os.WriteFile(f.Name, f.Data, 0o644))
		}
		if f.Name == "run.yaml" {
			req.File = f.Name
		}
	}
	env := map[string]string{}
	for line := range strings.Lines(getFile(ar, "env")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[name] = value
	}
	req.Getenv = func(name string) string { return env[name] }
	c, err := Load(req)
	var out strings.Builder
	if err != nil {
		require.Nil(t, c)
		require.Len(t, Faults(err), strings.Count(err.Error(), "\n")+1,
			"every fault is an *source.Error of one line")
		// a new family is not a change of any case
		fmt.Fprintln(&out, strings.ReplaceAll(err.Error(), strings.Join(hf.Names(), ", "), "every family"))
		return out.String()
	}
	for _, n := range c.Notices {
		fmt.Fprintln(&out, "notice:", n)
	}
	for _, key := range strings.Fields(getFile(ar, "show")) {
		value, ok := c.Value(key)
		require.True(t, ok, key)
		fmt.Fprintf(&out, "%s = %s (%s)\n", key, value, c.Origin(key))
	}
	return out.String()
}

func TestFaultNamesThePlace(t *testing.T) {
	c, err := Load(Request{File: "r.yaml", Text: []byte("model:\n  name: llama/2-7b\ndata:\n  paths: [x]\n"),
		Args: []string{"plan.tp=2"}})
	require.NoError(t, err)
	var e *source.Error
	require.ErrorAs(t, c.Fault("data.paths", "does not exist", "check the spelling"), &e)
	require.Equal(t, source.Error{File: "r.yaml", Line: 4, Key: "data.paths", Why: "does not exist",
		Try: "check the spelling"}, *e)
	require.EqualError(t, c.Fault("plan.tp", "too much", ""), "plan.tp=2: plan.tp: too much")
	require.EqualError(t, c.Fault("train.steps", "too few", ""), "r.yaml: train.steps: too few")
}

func TestCheckVocab(t *testing.T) {
	load := func(args ...string) *Config {
		c, err := Load(Request{Args: append([]string{"data.paths=x"}, args...)})
		require.NoError(t, err)
		return c
	}
	require.NoError(t, load("model.name=llama/2-7b").CheckVocab(32000))
	require.NoError(t, load("model.name=llama/2-7b").CheckVocab(31000), "unused rows are no fault")
	require.EqualError(t, load("model.name=llama/2-7b").CheckVocab(32001),
		"configs/models/llama/2-7b.yaml:11: model.overrides.vocab_size: the tokenizer has 32001 tokens, the model 32000 rows; "+
			"use the model's own tokenizer, or another model.overrides.vocab_size with model.init: random")

	require.NoError(t, os.WriteFile(filepath.Join(t.TempDir(), "x"), nil, 0o644))
	file := filepath.Join(t.TempDir(), "m.yaml")
	require.NoError(t, os.WriteFile(file,
		[]byte("{model_type: llama, hidden_size: 8, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 8}"), 0o644))
	c := load("model.file="+file, "plan.tp=2")
	require.NoError(t, c.CheckVocab(100))
	require.Equal(t, 100, c.Model.Vocab)
	require.NoError(t, load("model.file="+file, "plan.tp=2").CheckVocab(101), "a table need not divide")
}

// TestRecomputeFlags: layers are counted by one method, grouped by the other.
func TestRecomputeFlags(t *testing.T) {
	load := func(args ...string) (*Config, error) {
		return Load(Request{Args: append([]string{"--model-name", "llama2-7b", "--data-path", "x",
			"--pipeline-model-parallel-size", "4"}, args...)})
	}
	c, err := load("--recompute-granularity", "full", "--recompute-method", "block",
		"--custom-pipeline-recompute-layers", "8,6,4,2")
	require.NoError(t, err)
	require.Equal(t, []int{8, 6, 4, 2}, c.Run.Plan.RecomputeLayers)
	c, err = load("--recompute-granularity", "full", "--recompute-num-layers", "3", "--recompute-method",
		"uniform")
	require.NoError(t, err)
	require.Empty(t, c.Run.Plan.RecomputeLayers)
	require.Contains(t, strings.Join(c.Notices, "\n"),
		"--recompute-num-layers 3 with --recompute-method uniform: the input of every layer is kept here, not of every 3")
	for _, order := range []string{"--custom-pipeline-recompute-layers 8,6,4,2 --recompute-num-layers 3",
		"--recompute-num-layers 3 --custom-pipeline-recompute-layers 8,6,4,2"} {
		c, err = load(strings.Fields("--recompute-granularity full --recompute-method block " + order)...)
		require.NoError(t, err)
		require.Equal(t, []int{8, 6, 4, 2}, c.Run.Plan.RecomputeLayers)
		require.Contains(t, strings.Join(c.Notices, "\n"),
			"--recompute-num-layers 3: --custom-pipeline-recompute-layers 8,6,4,2 says how many layers")
	}
	for args, want := range map[string]string{
		"--recompute-method blocks":                                           `--recompute-method: "blocks", want block or uniform`,
		"plan.recompute=none --recompute-num-layers 3":                        "--recompute-num-layers: plan.recompute_layers: nothing is recomputed",
		"--recompute-granularity full --custom-pipeline-recompute-layers 8,6": "2 entries for plan.pp · plan.virtual_stages = 4 stages",
	} {
		_, err := load(strings.Fields(args)...)
		require.ErrorContains(t, err, want)
	}
}

// TestOffloadKeys: optimizer state on the host, as a run file and as Megatron ask for it; what has no
// meaning is refused.
func TestOffloadKeys(t *testing.T) {
	load := func(args string) (*Config, error) {
		return Load(Request{Args: append([]string{"--model-name", "llama2-7b", "--data-path", "x"},
			strings.Fields(args)...)})
	}
	c, err := load("--optimizer-cpu-offload --optimizer-offload-fraction 0.7 --overlap-cpu-optimizer-d2h-h2d")
	require.NoError(t, err)
	require.True(t, c.Run.Plan.OffloadOptimizer)
	require.Equal(t, 0.7, c.Run.Plan.OffloadShare)
	require.Equal(t, []string{"accepted, no effect: --overlap-cpu-optimizer-d2h-h2d"}, c.Notices)
	c, err = load("--strict")
	require.NoError(t, err)
	require.True(t, c.Run.Strict)
	c, err = load("plan.offload_optimizer=true plan.offload_dir=/scratch")
	require.NoError(t, err)
	require.Equal(t, 1.0, c.Run.Plan.OffloadShare)
	require.Equal(t, "/scratch", c.Run.Plan.OffloadDir)
	for args, want := range map[string]string{
		"plan.offload_optimizer_share=0.5": "plan.offload_optimizer_share: nothing of the optimizer's state is " +
			"moved; set plan.offload_optimizer, or remove it",
		"plan.offload_dir=/scratch": "plan.offload_dir: nothing is moved there; set plan.offload, " +
			"plan.offload_tensors or plan.offload_optimizer",
		"plan.offload_tensors=[attention,rope@]": `"rope@" has "" behind @, which is not a block`,
		"plan.recompute_tensors=[rope@5-4]":      `"rope@5-4" has "5-4" behind @`,
		`plan.keep_tensors=["@3"]`:               `"@3" names no tensor`,
		"plan.keep_tensors=[sum] plan.offload_tensors=[sum]": "plan.keep_tensors: sum is in " +
			"plan.offload_tensors too; name it once",
		"plan.offload=true plan.offload_dir=/scratch device=cuda": "plan.offload_dir: what ranks with device: " +
			"cuda move lies in pinned memory; remove it",
		"plan.offload_optimizer=true plan.offload_optimizer_share=1.5": "1.5",
	} {
		_, err := load(args)
		require.ErrorContains(t, err, want)
	}
}

// TestOverlapKeys: microbatches that overlap, as a run file and as Megatron ask for it.
func TestOverlapKeys(t *testing.T) {
	load := func(args string) (*Config, error) {
		return Load(Request{Args: append([]string{"--model-name", "llama2-7b", "--data-path", "x"},
			strings.Fields(args)...)})
	}
	c, err := load("--tensor-model-parallel-size 2 --overlap-moe-expert-parallel-comm --delay-wgrad-compute")
	require.NoError(t, err)
	require.True(t, c.Run.Plan.OverlapMicro)
	require.Equal(t, []string{"accepted, no effect: --delay-wgrad-compute"}, c.Notices)
	for _, enough := range []string{"plan.cp=2", "plan.dp=2 plan.ep=2", "plan.dp=2 plan.etp=2",
		"plan.dp=2 plan.zero=2"} {
		_, err = load("plan.overlap_microbatches=true " + enough)
		require.NoError(t, err)
	}
	for _, less := range []string{"", "plan.pp=2", "plan.dp=2 plan.zero=1"} {
		_, err = load("plan.overlap_microbatches=true " + less)
		require.ErrorContains(t, err, "no rank exchanges anything with others within a microbatch")
	}
}

// TestBoundsOnFiles holds that what is too large, too deep or no file is refused at once.
func TestBoundsOnFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o644))
	for want, path := range map[string]string{
		"more than 4MiB":          file("scalar.yaml", "device: "+strings.Repeat("x", 10<<20)),
		"more than 100000 values": file("wide.yaml", "freeze: ["+strings.Repeat("a, ", 100_000)+"]"),
		"more than 64 levels": file("deep.yaml", "freeze: "+strings.Repeat("[", 70)+strings.Repeat("]",
			70)),
		"is not a regular file":     pipe,
		"no such file or directory": filepath.Join(dir, "none"),
	} {
		_, err := Load(Request{File: path})
		require.ErrorContains(t, err, want)
		require.Len(t, Faults(err), 1)
	}
}

// FuzzRunFile holds that any text gives a configuration or faults of one line each, never a panic.
func FuzzRunFile(f *testing.F) {
	for _, seed := range []string{
		"model: {name: llama/2-7b}\ndata: {paths: [a, {path: b, weight: 2}]}\n", "a: &a [*a]\n",
		"plan: {tp: 1e3, memory: 4GiB}\n",
		"model:\n  overrides: {rope_scaling: {rope_type: llama3, factor: 8}}\n", "? [a]\n: b\n",
		"!!python/object:os.system x\n", "data: null\n...\n---\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Load(Request{File: "f", Text: []byte(text)})
		if err != nil {
			for _, line := range strings.Split(err.Error(), "\n") {
				require.NotEmpty(t, line)
			}
			require.NotEmpty(t, Faults(err))
			return
		}
		again, err := Load(Request{File: "f", Text: c.YAML()})
		require.NoError(t, err, string(c.YAML()))
		require.Equal(t, c.Flat(), again.Flat(), "YAML writes what Load reads")
	})
}

// FuzzArgs does the same for a command line.
func FuzzArgs(f *testing.F) {
	for _, seed := range []string{
		"--seq-length 128 --bf16 --data-path 0.5 a 0.5 b", "model.name=llama/2-7b data.paths=[a]",
		"--pipeline-model-parallel-layout Et*3|t*3|tmL",
		"+a.b=c ++plan.tp=2 --split 1,2,3", "--config-file", "--save-hf true x",
		"--moe-router-topk 8 --lr=1e-3 --use_distributed_optimizer",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "config-file") && strings.Contains(line, "/") {
			t.Skip("reads files of this machine")
		}
		_, err := Load(Request{Args: strings.Fields(line)})
		require.True(t, err == nil || len(Faults(err)) > 0)
	})
}

func TestFaultsOfOtherErrors(t *testing.T) {
	require.Nil(t, Faults(nil))
	require.Nil(t, Faults(errors.New("x")))
	require.Len(t, Faults(fmt.Errorf("reading: %w", &source.Error{File: "f"})), 1)
}
