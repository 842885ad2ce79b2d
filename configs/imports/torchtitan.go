package imports

import (
	"fmt"
	"math"
	"strings"
)

// torchtitan are the keys of torchtitan's TOML. Source: its torchtitan/config/job_config.py, release 0.2.
var torchtitan = map[string]rule{
	"job.dump_folder": to("log.dir"), "job.description": silent, "job.print_config": silent,
	"job.custom_config_module":     idle("there is no code in a run file"),
	"profiling.enable_profiling":   yesIdle("lfactor train --profile says where time goes"),
	"profiling.save_traces_folder": silent,
	"profiling.profile_freq":       silent, "profiling.enable_memory_snapshot": silent,
	"profiling.save_memory_snapshot_folder": silent,
	"metrics.log_freq":                      to("train.log_interval"), "metrics.disable_color_printing": silent,
	"metrics.enable_tensorboard": silent,
	"metrics.save_tb_folder":     to("log.tensorboard"), "metrics.enable_wandb": yesIdle(noReports),
	"model.name": silent, "model.flavor": silent, "model.hf_assets_path": to("data.tokenizer"),
	"model.tokenizer_path": to("data.tokenizer"),
	"model.converters":     converters, "model.print_after_conversion": silent, "model.norm_type": silent,
	"optimizer.name": word(
		"optimizer.kind",
		map[string]string{"adamw": "", "adam": "", "muon": "muon"},
	), "optimizer.lr": to("optimizer.lr"),
	"optimizer.eps": to("optimizer.eps"), "optimizer.beta1": to("optimizer.beta1"),
	"optimizer.beta2":        to("optimizer.beta2"),
	"optimizer.weight_decay": to("optimizer.weight_decay"), "optimizer.implementation": silent,
	"lr_scheduler.warmup_steps": to("schedule.warmup_steps"), "lr_scheduler.decay_ratio": silent,
	"lr_scheduler.decay_type": silent, "lr_scheduler.min_lr_factor": silent, "lr_scheduler.lr_min": silent,
	"training.local_batch_size": to("train.micro_batch"), "training.batch_size": to("train.micro_batch"),
	"training.global_batch_size": silent,
	"training.seq_len":           to("data.seq_len"), "training.max_norm": to("optimizer.clip_grad"),
	"training.steps":   to("train.steps"),
	"training.dataset": silent, "training.dataset_path": silent, "training.seed": to("train.seed"),
	"training.compile": idle(noSpeed),
	"training.mixed_precision_param": word("train.precision", map[string]string{"bfloat16": "bf16",
		"float32": "fp32"}),
	"training.mixed_precision_reduce": silent, "training.gc_freq": silent, "training.deterministic": silent,
	"training.enable_cpu_offload":                to("plan.offload_optimizer"),
	"parallelism.data_parallel_replicate_degree": silent, "parallelism.data_parallel_shard_degree": silent,
	"parallelism.tensor_parallel_degree":       to("plan.tp"),
	"parallelism.enable_async_tensor_parallel": to("plan.overlap"),
	"parallelism.pipeline_parallel_degree":     to("plan.pp"),
	"parallelism.pipeline_parallel_schedule": word("plan.schedule", map[string]string{
		"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "interleavedzerobubble": "zb-v",
		"zbvzerobubble": "zb-v", "dualpipev": "dualpipev"}),
	"parallelism.pipeline_parallel_microbatch_size":  silent,
	"parallelism.pipeline_parallel_layers_per_stage": idle("plan.virtual_stages and plan.layers cut the model"),
	"parallelism.context_parallel_degree":            to("plan.cp"), "parallelism.context_parallel_rotate_method": silent,
	"parallelism.expert_parallel_degree": to("plan.ep"), "parallelism.expert_tensor_parallel_degree": to("plan.etp"),
	"parallelism.fsdp_reshard_after_forward": silent, "parallelism.disable_loss_parallel": silent,
	"checkpoint.enable": silent, "checkpoint.enable_checkpoint": silent, "checkpoint.folder": silent,
	"checkpoint.interval":      to("checkpoint.interval"),
	"checkpoint.keep_latest_k": to("checkpoint.keep"), "checkpoint.last_save_model_only": silent,
	"checkpoint.last_save_in_hf": to("checkpoint.save_hf"),
	"checkpoint.export_dtype":    silent, "checkpoint.async_mode": silent,
	"checkpoint.initial_load_path":  to("checkpoint.load"),
	"checkpoint.initial_load_in_hf": silent, "checkpoint.initial_load_model_only": silent,
	"checkpoint.load_step": idle(resumes),
	"activation_checkpoint.mode": word(
		"plan.recompute",
		map[string]string{"none": "none", "selective": "selective", "full": "full"},
	),
	"activation_checkpoint.selective_ac_option": idle("plan.keep_tensors and lfactor plan --tensors choose tensors"),
	"compile.enable": idle(noSpeed), "compile.components": silent, "float8.enable_fsdp_float8_all_gather": silent,
	"quantize.linear.float8.enable_fsdp_float8_all_gather":            silent,
	"quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp": silent,
	"quantize.linear.float8.filter_fqns":                              idle("train.low_precision_keep names what stays"),
	"float8.precompute_float8_dynamic_scale_for_fsdp":                 silent,
	"float8.filter_fqns":                                              idle("train.low_precision_keep names what stays"),
	"validation.enable":                                               silent, "validation.dataset": silent, "validation.freq": to("train.eval_interval"),
	"validation.steps":          to("train.eval_steps"),
	"comm.init_timeout_seconds": silent, "comm.train_timeout_seconds": silent,
	"fault_tolerance.enable": silent, "experimental.custom_args_module": idle("there is no code in a run file"),
}

// torchtitanUsual is what torchtitan has where a file says nothing.
var torchtitanUsual = map[string]any{"optimizer.lr": 8e-4, "optimizer.beta2": 0.95, "optimizer.weight_decay": 0.1,
	"lr_scheduler.warmup_steps": 200, "training.local_batch_size": 8, "training.max_norm": 1.0,
	"training.steps": 10000, "training.mixed_precision_param": "bfloat16", "activation_checkpoint.mode": "selective",
	"lr_scheduler.decay_type": "linear"}

// converters are changes of the model, of which float8 has a like.
func converters(r *reading, key string, v any) {
	if list, ok := v.([]any); ok && len(list) > 0 {
		r.differ(key, v, "train.low_precision computes products in FP8")
	}
}

// flavors are its names of published models.
var flavors = map[string]string{
	"llama3/8b": "llama/3-8b", "llama3/70b": "llama/3-70b", "llama3/405b": "llama/3.1-405b",
	"qwen3/0.6b": "qwen/3-0.6b", "qwen3/1.7b": "qwen/3-1.7b", "qwen3/4b": "qwen/3-4b",
	"qwen3/8b": "qwen/3-8b", "qwen3/14b": "qwen/3-14b", "qwen3/32b": "qwen/3-32b", "deepseek_v3/671b": "deepseek/v3",
}

func finishTorchtitan(r *reading) {
	name := strings.ToLower(fmt.Sprint(r.all["model.name"], "/", r.all["model.flavor"]))
	if ours, ok := flavors[name]; ok {
		r.ours["model.name"], r.ours["model.init"] = ours, "random"
		if r.ours["checkpoint.load"] != nil {
			delete(r.ours, "model.init")
		}
	} else {
		r.ours["model.path"] = fmt.Sprint(r.all["model.hf_assets_path"])
		r.differ("model.flavor", name,
			"is no published model that lfactor names; model.path wants a folder with config.json (lfactor config models)")
	}
	micro, replicas := int(
		r.number("training.local_batch_size", r.number("training.batch_size", 1)),
	), int(
		r.number("parallelism.data_parallel_replicate_degree", 1),
	)
	shards, others := int(r.number("parallelism.data_parallel_shard_degree", -1)), 1
	for _, axis := range []string{"tensor", "pipeline", "context"} {
		others *= max(1, int(r.number("parallelism."+axis+"_parallel_degree", 1)))
	}
	if shards < 1 {
		shards = max(1, r.o.Devices/max(1, others*replicas))
		r.differ(
			"parallelism.data_parallel_shard_degree",
			-1,
			fmt.Sprintf("is what devices leave: %d with --devices %d", shards, r.o.Devices),
		)
	}
	r.ours["plan.dp"] = shards * replicas
	if shards > 1 {
		r.ours["plan.zero"] = 3
		if replicas > 1 {
			r.ours["plan.zero_ranks"] = shards
		}
	}
	batch := int(r.number("training.global_batch_size", -1))
	if batch < 1 {
		batch = micro * shards * replicas
	}
	r.ours["train.global_batch"] = batch
	r.rate()
	if !on(r.all["validation.enable"]) {
		delete(r.ours, "train.eval_interval")
		delete(r.ours, "train.eval_steps")
	}
	if on(r.all["checkpoint.enable"]) || on(r.all["checkpoint.enable_checkpoint"]) {
		r.ours["checkpoint.dir"] = strings.TrimSuffix(
			fmt.Sprint(r.all["job.dump_folder"]),
			"/",
		) + "/" + fmt.Sprint(r.all["checkpoint.folder"])
	} else {
		delete(r.ours, "checkpoint.interval")
		delete(r.ours, "checkpoint.keep")
	}
	path := r.all["training.dataset_path"]
	if path == nil {
		path = "data/" + fmt.Sprint(r.all["training.dataset"])
	}
	r.ours["data.paths"] = []string{fmt.Sprint(path)}
	r.differ(
		"training.dataset",
		r.all["training.dataset"],
		"data.paths wants files: text, JSON lines or Parquet",
	)
}

// rate sets the schedule of the learning rate: a ratio of decay keeps the rate before.
func (r *reading) rate() {
	r.ours["schedule.kind"] = "wsd"
	steps, ratio := r.number("training.steps", 1000), r.number("lr_scheduler.decay_ratio", -1)
	switch decay := fmt.Sprint(r.all["lr_scheduler.decay_type"]); {
	case ratio < 0 && decay == "cosine":
		r.ours["schedule.kind"] = "cosine"
	case ratio < 0:
		r.ours["schedule.kind"] = "linear"
	default:
		r.ours["schedule.wsd_decay_steps"] = int(ratio * steps)
		if decay == "cosine" || decay == "linear" {
			r.ours["schedule.wsd_decay"] = decay
		}
	}
	if f := r.number("lr_scheduler.min_lr_factor", r.number("lr_scheduler.lr_min", 0)); f > 0 {
		r.ours["optimizer.min_lr"] = math.Round(f*r.number("optimizer.lr", 0)*1e12) / 1e12
	}
}
