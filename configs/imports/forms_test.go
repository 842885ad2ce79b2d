package imports

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/lfactor/lfactor/configs"
)

// formCases are small files of each form: settings as key=value, and keys that are listed, both with a | between.
var formCases = []struct {
	tool, text, want, differs string
}{
	{"axolotl", "fsdp_version: 2\nfsdp_config: {reshard_after_forward: true, offload_params: true, activation_checkpointing: true}", "plan.zero=3|plan.offload_optimizer=true|plan.recompute=full", ""},
	{"axolotl", "fsdp: [full_shard, auto_wrap]\nfsdp_config: {fsdp_sharding_strategy: SHARD_GRAD_OP}", "plan.zero=2", ""},
	{"axolotl", "fsdp_version: 2\nfsdp_config: {reshard_after_forward: false}", "plan.zero=2", ""},
	{"axolotl", "dp_shard_size: 4\ndp_replicate_size: 2\nmicro_batch_size: 3", "plan.dp=8|plan.zero=3|plan.zero_ranks=4|train.global_batch=24", ""},
	{"axolotl", "warmup_steps: 0.1", "schedule.warmup_fraction=0.1", ""},
	{"axolotl", "warmup_ratio: 0.1\nmax_steps: 55", "schedule.warmup_steps=5", ""},
	{"axolotl", "warmup_ratio: 0.1\nmax_steps: 10", "schedule.warmup_steps=2", ""}, // its least
	{"axolotl", "batch_size: 8\nmicro_batch_size: 2", "train.global_batch=8", ""},
	{"axolotl", "bf16: false\nfp16: true", "train.precision=fp16", "fp16"},
	{"axolotl", "bf16: false", "train.precision=fp32", ""},
	{"axolotl", "cosine_min_lr_ratio: 0.1", "optimizer.min_lr=2e-05", ""},
	{"axolotl", "optimizer: adamw_torch_4bit", "optimizer.moments=8bit", "optimizer"},
	{"axolotl", "optimizer: paged_adamw_8bit", "optimizer.moments=8bit", ""},
	{"axolotl", "optimizer: OptimizerNames.ADAMW_TORCH", "optimizer.kind=adamw", ""},
	{"axolotl", "optimizer: came_pytorch", "optimizer.kind=adamw", "optimizer"},
	{"axolotl", "adapter: lora\nlora_r: 4\nlora_target_modules: 'model.layers.[\\d]+.(up|q)_proj'", "lora.rank=4", "lora_target_modules"},
	{"axolotl", "adapter: lora\nlora_r: 4\nlora_target_linear: true\nlora_target_modules: [q_proj]", "lora.targets=['*']", ""},
	{"axolotl", "adapter:\nlora_r: 4\nlora_alpha: 8", "lora.rank=0", ""},
	{"axolotl", "datasets: [{path: a.jsonl, type: chat_template, split: 'train[:20%]', field_messages: turns, message_property_mappings: {role: who}}]",
		"data.message_key=turns", "datasets.split|datasets.message_property_mappings"},
	{"axolotl", "datasets: [{path: a.jsonl, type: completion, field: chapter, data_files: [b.jsonl, c.jsonl]}]", "data.text_key=chapter|data.paths=[b.jsonl, c.jsonl]", ""},
	{"axolotl", "pretraining_dataset: [{path: allenai/c4, name: en, type: pretrain}]", "train.phase=pretrain|data.paths=[allenai/c4]", "pretraining_dataset.name"},
	{"axolotl", "rl: kto\nrl_beta: 0.5\nkto_desirable_weight: 0.2", "objective.kind=kto|objective.beta=0.5|objective.desirable=0.2", ""},
	{"axolotl", "reward_model: true\ncenter_rewards_coefficient: 0.01", "objective.kind=reward|objective.center=0.01", ""},
	{"axolotl", "rl: ebft\nebft: {stride: 8}", "objective.kind=none", "rl|ebft.stride"},
	{"axolotl", "rl: grpo\ntrl: {num_generations: 4, max_completion_length: 128, beta: 0.001, epsilon: 0.2, use_vllm: true, reward_funcs: [a.b]}",
		"objective.kind=grpo|rollout.group=4|rollout.max_tokens=128|objective.kl=0.001|objective.clip_low=0.2|objective.clip_high=0.2", "trl.reward_funcs"},
	{"axolotl", "qat: {weight_dtype: int4, group_size: 32, activation_dtype: int8}", "train.qat=int4|train.qat_group=32", "qat.activation_dtype"},
	{"axolotl", "qat: {weight_dtype: nvfp4, group_size: 16}", "train.qat=none", "qat.weight_dtype"},
	{"axolotl", "wandb_project: p\nwandb_name: n\nwandb_entity: e", "log.project=p|log.name=n|log.trackers=[wandb]", "wandb_project|wandb_entity"},
	{"axolotl", "special_tokens: {pad_token: a, eos_token: b}\ntokens: [c]", "", "special_tokens.eos_token|tokens"},
	{"axolotl", "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\nexcess_length_strategy: truncate", "data.drop_long=false", ""},
	{"axolotl", "plugins: [axolotl.integrations.diffusion.DiffusionPlugin]\ndiffusion: {eps: 1e-3}", "", "plugins|diffusion.eps"},
	{"axolotl", "gradient_checkpointing: offload\nsample_packing: true", "plan.recompute=full|plan.offload=true|data.packing=true|data.drop_long=true", ""},
	{"axolotl", "context_parapllel_size: 2\nloraplus_lr_ratio: 16", "optimizer.groups=['*.lora_B.weight, lr=16']", "context_parapllel_size"},
	{"axolotl", "val_set_size: 0.05\neval_steps: 100\nearly_stopping_patience: 3\nload_best_model_at_end: true", "train.eval_interval=100|train.patience=3|checkpoint.best=true", ""},
	{"axolotl", "val_set_size: 0.05\nevals_per_epoch: 4\nsaves_per_epoch: 2\nmax_steps: 101\nnum_epochs: 3", "train.eval_interval=9|checkpoint.interval=17|train.steps=101", ""},
	{"axolotl", "val_set_size: 0.05\nevals_per_epoch: 4\nsaves_per_epoch: 2\nnum_epochs: 3", "train.eval_interval=0|train.epochs=3", "evals_per_epoch|saves_per_epoch"},
	{"axolotl", "val_set_size: 0.05\nearly_stopping_patience: 3", "train.patience=0", "train.patience"},
	{"llamafactory", "finetuning_type: full\nlora_rank: 8\npure_bf16: true", "lora.rank=0|train.precision=bf16", "pure_bf16"},
	{"llamafactory", "stage: pt\nquantization_bit: 4\nquantization_method: bnb", "lora.base=nf4|data.packing=true", "quantization_method"},
	{"llamafactory", "stage: dpo\ndpo_label_smoothing: 0.1\ncutoff_len: 64", "objective.kind=dpo_smoothed|objective.smoothing=0.1|data.seq_len=128", ""},
	{"llamafactory", "packing: true", "data.packing=true", "packing"},
	{"llamafactory", "tensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\nuse_muon: true\nwarmup_ratio: 0.1\nmax_steps: 55", "plan.tp=2|plan.pp=2|optimizer.kind=muon|schedule.warmup_steps=6", ""},
	{"llamafactory", "report_to: [wandb, swanlab]\npissa_init: true\npissa_iter: -1", "log.trackers=[wandb]|lora.init=pissa", "report_to"},
	{"llamafactory", "optim: sgd\nlr_scheduler_type: constant\nwarmup_ratio: 0.1\nuse_dft_loss: true", "optimizer.momentum=0|schedule.warmup_fraction=0", "use_dft_loss"},
	{"trl", "lora_target_modules: all-linear", "optimizer.lr=2e-05|data.seq_len=1024|lora.alpha=32|lora.dropout=0.05|lora.rank=16|train.precision=bf16|lora.targets=['*']", "assistant_only_loss"},
	{"trl-dpo", "label_smoothing: 0.1\nlora_target_modules: [q_proj]", "objective.kind=dpo", "label_smoothing"},
	{"trl-dpo", "loss_type: ipo\nlora_target_modules: [q_proj]", "objective.kind=ipo|data.seq_len=2048|objective.beta=0.1|optimizer.lr=1e-06", ""},
	{"trl-reward", "lora_target_modules: [q_proj]", "objective.kind=reward|optimizer.lr=0.0001", ""},
	{"trl-grpo", "beta: 0.01\nlora_target_modules: [q_proj]", "objective.kind=dapo|objective.kl=0.01|rollout.group=8|rollout.max_tokens=512", "reward_funcs"},
}

// TestForms: each form that the tools' own examples have a key in is taken over as it is meant there, listed, or needs
// no setting; none falls.
func TestForms(t *testing.T) {
	base := map[string]string{"axolotl": "base_model: x\ndatasets: [{path: a.jsonl, type: alpaca}]\nlearning_rate: 2e-4\n",
		"llamafactory": "model_name_or_path: x\ndataset: a\n", "trl": "model_name_or_path: x\ndataset_name: a\nuse_peft: true\n"}
	for _, c := range formCases {
		file := filepath.Join(t.TempDir(), "a.yaml")
		text := base[strings.SplitN(c.tool, "-", 2)[0]]
		if strings.Contains(c.text, "datasets: ") {
			text = strings.Replace(text, "datasets: [{path: a.jsonl, type: alpaca}]\n", "", 1)
		}
		require.NoError(t, os.WriteFile(file, []byte(text+c.text+"\n"), 0o600))
		r, err := Import(file, Options{Tool: c.tool})
		require.NoError(t, err, c.text)
		run := filepath.Join(t.TempDir(), "run.yaml")
		require.NoError(t, os.WriteFile(run, []byte(r.Text), 0o600))
		// kinds of objectives are registered by packages that this one does not import
		cfg, err := configs.Load(configs.Request{File: run, Args: []string{"model.path=" + model(t), "objective.kind=none"}, Getenv: func(string) string { return "" }})
		tree, written := map[string]any{}, map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(r.Text), &tree))
		flatten(written, "", tree)
		for _, part := range strings.FieldsFunc(c.want, func(c rune) bool { return c == '|' }) {
			key, want, _ := strings.Cut(part, "=")
			var got string
			if v, ok := written[key]; ok {
				got = strings.Join(strings.Fields(fmt.Sprint(v)), ", ")
			} else {
				require.NotNil(t, cfg, "%s: %v\n%s", c.text, err, r.Text)
				got, ok = cfg.Value(key)
				require.True(t, ok, key)
			}
			require.Equal(t, strings.ReplaceAll(want, "'", ""), got, "%s: %s\n%s", c.text, key, r.Text)
		}
		var listed []string
		for _, d := range r.Differences {
			if !slices.Contains([]string{"base_model", "datasets", "pretraining_dataset", "dataset", "dataset_name", "model_name_or_path", "warmup_steps", "bf16"}, d.Key) {
				listed = append(listed, d.Key)
			}
		}
		require.ElementsMatch(t, strings.FieldsFunc(c.differs, func(c rune) bool { return c == '|' }), listed, "%s\n%s", c.text, r.Text)
	}
}

// TestTorchtitanPath: a model that has no name here lies where torchtitan's own assets or tokenizer do; where neither is
// given nothing is written for a folder.
func TestTorchtitanPath(t *testing.T) {
	for text, want := range map[string]any{"tokenizer_path = \"./tok\"": "./tok", "hf_assets_path = \"./assets\"\ntokenizer_path = \"./tok\"": "./assets",
		"": nil} {
		file := filepath.Join(t.TempDir(), "a.toml")
		require.NoError(t, os.WriteFile(file, []byte("[training]\nsteps = 10\n[model]\nname = \"llama3\"\nflavor = \"debugmodel\"\n"+text+"\n"), 0o600))
		r, err := Import(file, Options{Tool: "torchtitan"})
		require.NoError(t, err)
		tree, written := map[string]any{}, map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(r.Text), &tree))
		flatten(written, "", tree)
		require.Equal(t, want, written["model.path"], r.Text)
	}
}
