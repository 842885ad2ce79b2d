package imports

import (
	"fmt"
	"maps"
	"slices"
)

// axolotl are the keys of Axolotl's YAML. Source: its docs/config-reference, release 0.12.
var axolotl = map[string]rule{
	"base_model": to("model.path"), "model_type": silent, "tokenizer_type": silent, "trust_remote_code": silent,
	"tokenizer_config": to("data.tokenizer"),
	"load_in_8bit":     few, "load_in_4bit": few, "strict": silent, "adapter": silent,
	"lora_r": to("lora.rank"), "lora_alpha": to("lora.alpha"), "lora_dropout": to("lora.dropout"),
	"peft_use_rslora": to("lora.rslora"), "lora_target_modules": targets,
	"lora_target_linear": yes(
		"lora.targets",
		[]string{"*"},
	), "lora_modules_to_save": modules, "peft_use_dora": to("lora.dora"), "peft_init_lora_weights": to("lora.init"), "peft_trainable_token_indices": to("lora.trainable_tokens"),
	"lora_model_dir": silent, "datasets": axolotlData, "test_datasets": idle("name its files in data.valid"),
	"val_set_size":          held,
	"dataset_prepared_path": idle("there is no cache of tokens"), "shuffle_merged_datasets": silent,
	"sequence_len": to("data.seq_len"), "sample_packing": to("data.packing"), "eval_sample_packing": silent,
	"pad_to_sequence_len": silent, "chat_template": silent, "train_on_inputs": to("data.train_on_prompt"),
	"group_by_length":  idle("packing fills sequences"),
	"micro_batch_size": silent, "gradient_accumulation_steps": silent, "num_epochs": silent,
	"max_steps": silent, "eval_batch_size": silent,
	"optimizer": optimizer, "lr_scheduler": word("schedule.kind", decays), "learning_rate": to("optimizer.lr"),
	"warmup_steps": to("schedule.warmup_steps"), "warmup_ratio": to("schedule.warmup_fraction"),
	"weight_decay": to("optimizer.weight_decay"), "max_grad_norm": to("optimizer.clip_grad"),
	"adam_beta1": to("optimizer.beta1"),
	"adam_beta2": to("optimizer.beta2"), "adam_epsilon": to("optimizer.eps"), "bf16": yes("train.precision", "bf16"),
	"fp16": yes("train.precision", "fp16"), "tf32": idle(noSpeed),
	"gradient_checkpointing":        yes("plan.recompute", "full"),
	"gradient_checkpointing_kwargs": silent, "flash_attention": idle(noSpeed),
	"sdp_attention": idle(noSpeed), "xformers_attention": idle(noSpeed),
	"logging_steps": to("train.log_interval"), "output_dir": to("checkpoint.dir"),
	"save_steps":       to("checkpoint.interval"),
	"save_total_limit": to("checkpoint.keep"), "saves_per_epoch": idle("lfactor counts steps: checkpoint.interval"),
	"evals_per_epoch": idle("lfactor counts steps: train.eval_interval"), "eval_steps": to("train.eval_interval"),
	"save_strategy": silent, "load_best_model_at_end": yes("checkpoint.best", true), "metric_for_best_model": bestBy,
	"resume_from_checkpoint": idle(resumes), "seed": to("train.seed"), "deepspeed": zero, "fsdp": fsdp,
	"fsdp_config": silent,
	"rl": word(
		"objective.kind",
		map[string]string{
			"dpo":   "dpo",
			"ipo":   "ipo",
			"kto":   "kto",
			"orpo":  "orpo",
			"simpo": "simpo",
			"grpo":  "grpo",
		},
	),
	"rl_beta": to("objective.beta"), "dpo_beta": to("objective.beta"), "orpo_alpha": to("objective.beta"),
	"simpo_gamma":              to("objective.gamma"),
	"sequence_parallel_degree": to("plan.cp"), "context_parallel_size": to("plan.cp"),
	"tensor_parallel_size": to("plan.tp"),
	"wandb_project":        idle(noReports), "wandb_entity": idle(noReports), "wandb_watch": idle(noReports),
	"wandb_name": idle(noReports), "wandb_log_model": idle(noReports), "use_tensorboard": silent,
	"special_tokens": idle("are the tokenizer's: tokenizer_config.json"),
	"plugins":        idle(noSpeed), "liger_rope": idle(noSpeed), "liger_rms_norm": idle(noSpeed),
	"liger_glu_activation":             idle(noSpeed),
	"liger_fused_linear_cross_entropy": idle(noSpeed), "hub_model_id": idle("nothing is sent anywhere"),
	"auto_resume_from_checkpoints": silent,
}

// axolotlUsual is what Axolotl and transformers' TrainingArguments have where a file says nothing.
var axolotlUsual = map[string]any{"lr_scheduler": "cosine", "weight_decay": 0.0, "adam_beta1": 0.9, "adam_beta2": 0.999,
	"adam_epsilon": 1e-8, "max_grad_norm": 1.0, "micro_batch_size": 1, "sequence_len": 512, "sample_packing": false,
	"lora_dropout": 0.0, "output_dir": "./model-out", "seed": 42}

// few are bits of the weights that adapters add to.
func few(r *reading, key string, v any) {
	if on(v) {
		r.ours["lora.base"] = map[string]string{"load_in_4bit": "nf4", "load_in_8bit": "int8"}[key]
	}
}

// yesIdle is a switch that has no like here, where it is on.
func yesIdle(why string) rule {
	return func(r *reading, key string, v any) {
		if on(v) {
			r.differ(key, v, why)
		}
	}
}

// axolotlData takes its list of data over.
func axolotlData(r *reading, key string, v any) {
	var paths []string
	list, _ := v.([]any) // another shape gives none, which is said
	for _, d := range list {
		m, _ := d.(map[string]any) // as above
		if m["path"] == nil {
			continue
		}
		path := fmt.Sprint(m["path"])
		if files, ok := m["data_files"].([]any); ok {
			for _, f := range files {
				paths = append(paths, fmt.Sprint(f))
			}
		} else {
			paths = append(paths, path)
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			same := []string{"split train", "roles_to_train [assistant]", "train_on_eos turn", "field_messages messages"}
			if !slices.Contains([]string{"path", "type", "data_files", "ds_type"}, k) &&
				!slices.Contains(same, fmt.Sprint(k, " ", m[k])) {
				r.differ(key+"."+k, m[k], "is not read: docs/data.md has the forms of conversations that are")
			}
		}
		if t := fmt.Sprint(m["type"]); t != "chat_template" && t != "alpaca" && t != "sharegpt" && t != "<nil>" &&
			t != "completion" {
			r.differ(
				key+".type",
				t,
				"lfactor knows alpaca, sharegpt and OpenAI's messages by their columns; others are named in docs/data.md",
			)
		}
	}
	if len(paths) == 0 {
		r.differ(key, v, "no path was found: set data.paths")
		paths = []string{"data"}
	}
	r.ours["data.paths"] = paths
	r.differ(
		key,
		fmt.Sprint(paths),
		"a name of the hub is none of a file: data.paths wants files that are here",
	)
}

// fsdp shares all out, as ZeRO 3 does.
func fsdp(r *reading, key string, v any) {
	if list, ok := v.([]any); ok && len(list) > 0 {
		r.ours["plan.zero"] = 3
	}
}

func finishAxolotl(r *reading) {
	r.batches("micro_batch_size", "gradient_accumulation_steps")
	r.length("max_steps", "num_epochs", 1)
	r.ours["train.loss_average"] = "token" // as transformers' Trainer has it
	if r.all["warmup_steps"] == nil && r.all["warmup_ratio"] == nil {
		r.ours["schedule.warmup_fraction"] = 0.03
		r.differ("warmup_steps", nil, "was not given: 3 % of the steps stand for it; there they are 100 at most")
	}
	r.ours["checkpoint.save_hf"] = true
	r.fromHub("base_model")
	switch kind := fmt.Sprint(r.all["adapter"]); kind {
	case "<nil>", "":
		r.noAdditions()
	case "qlora":
		r.ours["lora.base"] = "nf4"
	case "lora":
	default:
		r.differ("adapter", kind, "only additions of low rank are trained here")
	}
	if r.ours["objective.kind"] == nil {
		r.ours["train.phase"] = "sft"
		if list, ok := r.all["datasets"].([]any); ok && len(list) > 0 {
			if m, ok := list[0].(map[string]any); ok && m["type"] == "completion" {
				delete(r.ours, "train.phase")
			}
		}
	}
	if t := r.all["chat_template"]; t != nil && t != "tokenizer_default" {
		r.differ(
			"chat_template",
			t,
			"the tokenizer's own chat template is taken; data.template names another",
		)
	}
}
