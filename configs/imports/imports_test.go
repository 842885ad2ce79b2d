package imports

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lfactor/lfactor/configs"
	_ "github.com/lfactor/lfactor/stages/family/all"
)

// model writes a Hugging Face directory of a small model.
func model(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(
		t,
		os.WriteFile(filepath.Join(dir, "config.json"), []byte(`{"architectures":["LlamaForCausalLM"],
"model_type":"llama","hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
"intermediate_size":128,"vocab_size":512,"max_position_embeddings":8192,"rms_norm_eps":1e-5,"rope_theta":10000.0,
"hidden_act":"silu","attention_bias":false,"mlp_bias":false,"tie_word_embeddings":false,"torch_dtype":"bfloat16"}`), 0o600),
	)
	return dir
}

// TestImport: a file of each tool becomes a run file that loads, with the settings that mean the same, and
// every key that is not taken over is listed with its reason.
func TestImport(t *testing.T) {
	for file, c := range map[string]struct {
		want    map[string]string
		differs map[string]string // keys, and a part of the reason
	}{
		"llamafactory.yaml": {
			want: map[string]string{"train.phase": "sft", "lora.rank": "8", "lora.targets": `["*"]`, "plan.zero": "2", "train.global_batch": "32",
				"train.micro_batch": "1", "plan.dp": "4", "optimizer.lr": "0.0001", "schedule.kind": "cosine", "schedule.warmup_fraction": "0.1",
				"train.precision": "bf16", "data.seq_len": "2048", "data.split": "[90, 10, 0]", "train.eval_interval": "500", "checkpoint.interval": "500",
				"plan.recompute": "full", "train.epochs": "3", "data.paths": "[data/identity.json*, data/alpaca_en_demo.json*]"},
			differs: map[string]string{"neftune_noise_alpha": "no noise", "max_samples": "fewer files",
				"dataset": "dataset_info.json", "template": "chat template", "model_name_or_path": "hf:// fetches it"},
		},
		"axolotl.yaml": {
			want: map[string]string{"train.phase": "sft", "lora.rank": "32", "lora.alpha": "16", "train.global_batch": "32", "train.micro_batch": "2",
				"train.steps": "300", "optimizer.lr": "0.0002", "train.precision": "bf16", "data.packing": "true", "schedule.warmup_steps": "10",
				"checkpoint.interval": "300",
				"plan.recompute":      "full", "checkpoint.dir": "./outputs/lora-out", "lora.base": "nf4"},
			differs: map[string]string{"datasets": "hub", "datasets.roles_to_train": "forms of conversations", "datasets.message_field_training": "is not read", "base_model": "hf:// fetches it"},
		},
		"torchtitan.toml": {
			want: map[string]string{"model.name": "llama/3-8b", "model.init": "random", "optimizer.lr": "0.0003", "schedule.kind": "wsd",
				"schedule.wsd_decay_steps": "800", "schedule.wsd_decay": "linear", "optimizer.min_lr": "3e-05", "train.steps": "1000",
				"plan.tp": "2", "plan.dp": "2", "plan.zero": "3", "train.global_batch": "2", "data.seq_len": "8192", "checkpoint.interval": "500",
				"plan.recompute": "selective", "checkpoint.dir": "./outputs/checkpoint"},
			differs: map[string]string{"training.dataset": "wants files", "activation_checkpoint.selective_ac_option": "keep_tensors",
				"parallelism.data_parallel_shard_degree": "--devices 4"},
		},
	} {
		r, err := Import(filepath.Join("testdata", file), Options{Devices: 4})
		require.NoError(t, err, file)
		got := map[string]string{}
		for _, d := range r.Differences {
			got[d.Key] = d.Why
		}
		for key, why := range c.differs {
			require.Contains(t, got[key], why, "%s: %s", file, key)
			delete(got, key)
		}
		require.Empty(t, got, file)

		run := filepath.Join(t.TempDir(), "run.yaml")
		require.NoError(t, os.WriteFile(run, []byte(r.Text), 0o600))
		args := []string{"model.path=" + model(t)}
		if c.want["model.name"] != "" {
			args = nil
		}
		cfg, err := configs.Load(
			configs.Request{File: run, Args: args, Getenv: func(string) string { return "" }},
		)
		require.NoError(t, err, "%s:\n%s", file, r.Text)
		for key, want := range c.want {
			v, ok := cfg.Value(key)
			require.True(t, ok, key)
			require.Equal(t, want, v, "%s: %s", file, key)
		}
	}
}

// TestUsual: what a file leaves out is as it is in its tool, and is said; a value of the file stands before it.
func TestUsual(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]string
		said       string
	}{
		{"a.yaml", "model_name_or_path: x\nstage: sft\ndataset: a\nlora_rank: 16\noptim: paged_adamw_8bit\n", map[string]string{
			"optimizer.lr": "5e-05", "optimizer.beta2": "0.999", "optimizer.weight_decay": "0", "lora.alpha": "32",
			"schedule.kind": "linear", "data.packing": "false", "train.micro_batch": "8", "train.epochs": "3",
			"train.loss_average": "token", "optimizer.moments": "8bit", "data.seq_len": "2048", "checkpoint.interval": "500"},
			"# Not given, so as it is there: adam_beta1 0.9, adam_beta2 0.999,"},
		{"b.yaml", "model_name_or_path: x\nstage: pt\ndataset: a\noptim: lion\nfinetuning_type: oft\nweight_decay: 0.3\n" +
			"eval_steps: 5\nval_size: 0.1\n", map[string]string{"optimizer.beta2": "0.999", "data.packing": "true",
			"optimizer.weight_decay": "0.3", "train.eval_interval": "0"}, "orthogonal additions are not trained here"},
		{"c.yaml", "base_model: x\ndatasets: [{path: a.jsonl, type: alpaca}]\n", map[string]string{"optimizer.beta2": "0.999",
			"schedule.warmup_fraction": "0.03", "data.seq_len": "512", "train.epochs": "1", "schedule.kind": "cosine",
			"optimizer.weight_decay": "0"}, "3 % of the steps"},
		{"d.toml", "[training]\nseq_len = 64\nbatch_size = 3\n[model]\nname = 'llama3'\nflavor = '8B'\n[validation]\nfreq = 5\n",
			map[string]string{"train.micro_batch": "3", "optimizer.lr": "0.0008", "schedule.warmup_steps": "200",
				"train.steps": "10000", "train.precision": "bf16", "train.eval_interval": "0", "plan.recompute": "selective"},
			"optimizer.lr 0.0008"},
	} {
		file := filepath.Join(t.TempDir(), c.name)
		require.NoError(t, os.WriteFile(file, []byte(c.text), 0o600))
		r, err := Import(file, Options{})
		require.NoError(t, err)
		require.Contains(t, r.Text, c.said)
		run := filepath.Join(t.TempDir(), "run.yaml")
		require.NoError(t, os.WriteFile(run, []byte(r.Text), 0o600))
		args := []string{"model.path=" + model(t)}
		if c.name == "d.toml" {
			args = nil
		}
		cfg, err := configs.Load(configs.Request{File: run, Args: args, Getenv: func(string) string { return "" }})
		require.NoError(t, err, "%s", r.Text)
		for key, want := range c.want {
			v, ok := cfg.Value(key)
			require.True(t, ok, key)
			require.Equal(t, want, v, "%s: %s\n%s", c.name, key, r.Text)
		}
	}
}

// TestKeys: every rule sets keys that there are: each is tried with a value of its own kind.
func TestKeys(t *testing.T) {
	known := map[string]bool{}
	for _, k := range configs.Keys() {
		known[k.Name] = true
	}
	for _, tool := range tools {
		keys, err := read(tool.table)
		require.NoError(t, err)
		for key, s := range keys.steps {
			for _, v := range []any{true, 1, .5, "x", []any{"a"}, "adamw", "cosine", "ds_z3_offload.json"} {
				r := &reading{o: Options{Devices: 1}, all: map[string]any{key: v}, ours: map[string]any{}}
				r.out.Taken, r.out.Same = map[string][]string{}, map[string]string{}
				r.take(s, key, v)
				for ours := range r.ours {
					require.True(t, known[ours], "%s: %s → %s", tool.name, key, ours)
				}
				require.NotEmpty(t, len(r.out.Taken)+len(r.out.Same)+len(r.out.Differences), "%s: %s=%v falls", tool.name, key, v)
			}
		}
		for key := range keys.usual {
			_, ok := keys.step(key)
			require.True(t, ok, "%s: %s stands for itself, and no step reads it", tool.name, key)
		}
	}
}

// TestFaults: what is no file of a known tool is refused, with its line where it has one.
func TestFaults(t *testing.T) {
	for name, text := range map[string]string{"a.yaml": "x: 1\n", "b.yaml": "x: [\n", "c.toml": "[a]\nb = 1\nc\n", "d.toml": "a = 1\na = 2\n",
		"e.toml": "a = what\n"} {
		file := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := Import(file, Options{})
		var fault *configs.Error
		require.ErrorAs(t, err, &fault, name)
		require.Contains(
			t,
			err.Error(),
			map[string]string{"a.yaml": "none of the tools", "b.yaml": "yaml", "c.toml": "line 3", "d.toml": "already",
				"e.toml": "line 1"}[name],
		)
	}
	_, err := Import("nowhere.yaml", Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// FuzzTOML: no text panics.
func FuzzTOML(f *testing.F) {
	text, err := os.ReadFile("testdata/torchtitan.toml")
	require.NoError(f, err)
	f.Add(text)
	f.Add([]byte("a = [1, [2, \"x,]\"]]\n[b.c]\n'q' = 1e3"))
	f.Fuzz(func(_ *testing.T, text []byte) { _, _ = readTOML(text) })
}
