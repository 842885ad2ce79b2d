package imports

import (
	"fmt"
	"strings"
)

// llamafactory are the keys of LLaMA-Factory's YAML. Source: its README and src/llamafactory/hparams,
// release 0.9.3.
var llamafactory = map[string]rule{
	"model_name_or_path": to("model.path"), "adapter_name_or_path": to("checkpoint.load"),
	"trust_remote_code": silent, "stage": silent, "do_train": silent, "do_eval": silent, "finetuning_type": silent,
	"lora_rank": to("lora.rank"), "lora_alpha": to("lora.alpha"), "lora_dropout": to("lora.dropout"),
	"use_rslora": to("lora.rslora"), "use_dora": to("lora.dora"), "pissa_init": yes("lora.init", "pissa_niter_16"),
	"pissa_convert": silent, "pissa_iter": idle("set lora.init to pissa_niter_N, or to pissa for -1"), "additional_target": modules, "lora_target": targets,
	"freeze_vision_tower": idle("set freeze: [visual.*], which see lfactor config explain freeze"),
	"dataset":             silent, "dataset_dir": silent, "eval_dataset": idle("name its files in data.valid"),
	"template": silent, "cutoff_len": to("data.seq_len"), "packing": to("data.packing"), "neat_packing": silent,
	"max_samples": idle("give fewer files, or data.filters"), "overwrite_cache": idle("there is no cache of tokens"),
	"preprocessing_num_workers": idle(noThreads), "dataloader_num_workers": idle(noThreads),
	"train_on_prompt": to("data.train_on_prompt"), "mask_history": to("data.last_turn_only"),
	"output_dir": to("checkpoint.dir"), "logging_steps": to("train.log_interval"),
	"save_steps": to("checkpoint.interval"), "save_total_limit": to("checkpoint.keep"), "save_strategy": silent,
	"load_best_model_at_end": yes("checkpoint.best", true), "metric_for_best_model": bestBy,
	"save_only_model": idle("checkpoints hold all that a run goes on from"),
	"plot_loss":       silent, "overwrite_output_dir": idle(resumes), "resume_from_checkpoint": idle(resumes),
	"report_to": idle(noReports), "run_name": idle(noReports), "logging_dir": to("log.dir"),
	"per_device_train_batch_size": silent, "gradient_accumulation_steps": silent,
	"per_device_eval_batch_size": silent,
	"learning_rate":              to("optimizer.lr"), "num_train_epochs": silent, "max_steps": silent,
	"lr_scheduler_type": word("schedule.kind", decays),
	"warmup_ratio":      to("schedule.warmup_fraction"), "warmup_steps": to("schedule.warmup_steps"),
	"weight_decay": to("optimizer.weight_decay"), "max_grad_norm": to("optimizer.clip_grad"),
	"adam_beta1": to("optimizer.beta1"),
	"adam_beta2": to("optimizer.beta2"), "adam_epsilon": to("optimizer.eps"), "optim": optimizer,
	"bf16": yes("train.precision", "bf16"), "fp16": yes("train.precision", "fp16"),
	"pure_bf16": yes("train.precision", "bf16"),
	"seed":      to("train.seed"), "data_seed": to("data.seed"), "val_size": held, "eval_steps": to("train.eval_interval"),
	"eval_strategy": silent,
	"pref_beta":     to("objective.beta"), "pref_loss": silent, "pref_ftx": to("objective.sft_weight"),
	"simpo_gamma":         to("objective.gamma"),
	"dpo_label_smoothing": to("objective.smoothing"), "kto_chosen_weight": to("objective.desirable"),
	"kto_rejected_weight": to("objective.undesirable"), "ref_model": to("objective.reference"),
	"deepspeed": zero, "ddp_timeout": idle("log.stall says when a run that takes no step says why"),
	"flash_attn": idle(noSpeed), "enable_liger_kernel": idle(noSpeed), "use_unsloth": idle(noSpeed),
	"gradient_checkpointing": silent, "disable_gradient_checkpointing": silent,
	"quantization_bit":    word("lora.base", map[string]string{"4": "nf4", "8": "int8"}),
	"quantization_method": idle("lora.base names the form of the weights in memory"),
	"image_max_pixels":    idle("is of the processor: preprocessor_config.json of data.processor"),
	"video_max_pixels":    idle("is of the processor: preprocessor_config.json of data.processor"),
}

// llamafactoryUsual is what LLaMA-Factory and transformers' TrainingArguments have where a file says nothing.
var llamafactoryUsual = map[string]any{"learning_rate": 5e-5, "lr_scheduler_type": "linear", "weight_decay": 0.0,
	"adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "max_grad_norm": 1.0,
	"per_device_train_batch_size": 8,
	"num_train_epochs":            3.0, "cutoff_len": 2048, "packing": false, "lora_dropout": 0.0, "save_steps": 500,
	"output_dir": "trainer_output", "seed": 42}

// optimizer takes an optimizer over, with moments in eight bits where its name says so.
func optimizer(r *reading, key string, v any) {
	name := strings.ToLower(fmt.Sprint(v))
	if base, ok := strings.CutSuffix(name, "_8bit"); ok && strings.HasPrefix(strings.TrimPrefix(base, "paged_"), "adamw") {
		r.ours["optimizer.moments"] = "8bit"
		return
	}
	word("optimizer.kind", optimizers)(r, key, v)
}

var optimizers = map[string]string{
	"adamw_torch": "", "adamw_torch_fused": "", "adamw_hf": "", "adamw": "", "adam": "", "sgd": "sgd",
	"lion": "lion", "lion_32bit": "lion", "muon": "muon", "paged_adamw_32bit": "",
}

// preferences are its names of losses of pairs.
var preferences = map[string]string{
	"sigmoid": "dpo", "hinge": "dpo_hinge", "ipo": "ipo", "orpo": "orpo", "simpo": "simpo", "kto_pair": "kto",
}

func finishLlamafactory(r *reading) {
	r.batches("per_device_train_batch_size", "gradient_accumulation_steps")
	r.length("max_steps", "num_train_epochs", 3)
	r.ours["train.loss_average"] = "token" // as transformers' Trainer has it
	if s := fmt.Sprint(r.all["eval_strategy"]); s != "steps" {
		delete(r.ours, "train.eval_interval")
	}
	r.ours["checkpoint.save_hf"] = true
	r.fromHub("model_name_or_path")
	stage := fmt.Sprint(r.all["stage"])
	switch stage {
	case "pt":
		r.ours["data.kind"] = "auto"
		if r.out.Usual["packing"] != nil { // texts are packed there
			r.ours["data.packing"] = true
		}
	case "sft", "<nil>":
		r.ours["train.phase"] = "sft"
	case "rm":
		r.ours["objective.kind"] = "reward"
	case "dpo":
		loss, ok := preferences[fmt.Sprint(r.all["pref_loss"])]
		if !ok {
			loss = "dpo"
		}
		r.ours["objective.kind"] = loss
	case "kto":
		r.ours["objective.kind"] = "kto"
	default:
		r.differ("stage", stage, "is trained otherwise here: docs/post-training.md")
	}
	if kind := fmt.Sprint(r.all["finetuning_type"]); kind == "lora" || kind == "<nil>" || kind == "oft" {
		if _, ok := r.ours["lora.rank"]; !ok {
			r.ours["lora.rank"] = 8 // as it has it
		}
		if r.all["lora_alpha"] == nil {
			r.ours["lora.alpha"] = 2 * r.number("lora_rank", 8) // as it has it
		}
		if kind == "oft" {
			r.differ("finetuning_type", kind, "orthogonal additions are not trained here: additions of low rank stand in their place")
		}
		if _, ok := r.ours["lora.targets"]; !ok {
			r.ours["lora.targets"] = []string{"*"}
		}
	} else if r.noAdditions(); kind == "freeze" {
		r.differ("finetuning_type", kind, "name what is not trained in freeze")
	}
	if !on(r.all["disable_gradient_checkpointing"]) {
		r.ours["plan.recompute"] = "full"
	}
	dir := fmt.Sprint(r.all["dataset_dir"])
	if dir == "<nil>" {
		dir = "data"
	}
	var paths []string
	for _, name := range strings.Split(fmt.Sprint(r.all["dataset"]), ",") {
		paths = append(paths, dir+"/"+strings.TrimSpace(name)+".json*")
	}
	r.ours["data.paths"] = paths
	r.differ(
		"dataset",
		r.all["dataset"],
		"are names of "+dir+"/dataset_info.json; data.paths wants their files, and tells alpaca, sharegpt and OpenAI apart by itself",
	)
	if t := r.all["template"]; t != nil && t != "default" {
		r.differ("template", t, "the tokenizer's own chat template is taken; data.template names another")
	}
}
