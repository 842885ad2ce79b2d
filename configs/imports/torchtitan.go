package imports

import (
	"fmt"
	"math"
	"strings"
)

// converters are changes of the model, of which float8 has a like.
func converters(r *reading, key string, v any) {
	if off(v) {
		r.same(key, "is off there, as here")
		return
	}
	r.differ(key, v, "train.low_precision computes products in FP8")
}

// groups reads what a function of torchtitan's registry says in lists and in names of classes, by the keys of its older files.
func (r *reading) groups() {
	if ac := r.all["activation_checkpoint._type"]; ac != nil {
		r.all["activation_checkpoint.mode"] = strings.ToLower(strings.TrimSuffix(fmt.Sprint(ac), "AC.Config"))
	} else if _, there := r.all["activation_checkpoint"]; there {
		r.all["activation_checkpoint.mode"] = "none"
	}
	length := r.number("training.max_context_length", 0)
	for theirs, older := range map[string]string{"per_microbatch_per_dp_rank": "local_batch_size", "per_train_step": "global_batch_size"} {
		if n := r.number("training.num_tokens_"+theirs, -1); n > 0 && length > 0 {
			r.all["training."+older] = max(1, int(n/length))
		}
	}
	list, _ := r.all["optimizer.param_groups"].([]any) // older files have none
	var rules []string
	for i, g := range list {
		of, _ := g.(map[string]any)
		set, _ := of["optimizer_kwargs"].(map[string]any)
		if pattern := fmt.Sprint(of["pattern"]); i < len(list)-1 || len(list) > 1 && pattern != ".*" {
			rules = append(rules, fmt.Sprint(pattern, " ", of["optimizer_name"], " ", set))
			continue
		}
		r.all["optimizer.name"] = of["optimizer_name"]
		for key, v := range set {
			if betas, ok := v.([]any); ok && len(betas) == 2 {
				r.all["optimizer.beta1"], r.all["optimizer.beta2"] = betas[0], betas[1]
				continue
			}
			r.all["optimizer."+key] = v
		}
	}
	if rules != nil {
		r.differ("optimizer.param_groups", strings.Join(rules, "; "), "optimizer.groups has rules by patterns with *, in place of regular expressions")
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
		for _, key := range []string{"model.hf_assets_path", "model.tokenizer_path"} { // the second of 0.1
			if at := r.all[key]; at != nil && r.ours["model.path"] == nil {
				r.ours["model.path"] = at
			}
		}
		r.differ("model.flavor", name,
			"is no published model that lfactor names; model.path wants a folder with config.json (lfactor config models)")
	}
	micro := int(r.number("training.local_batch_size", r.number("training.batch_size", 1)))
	replicas := int(r.number("parallelism.data_parallel_replicate_degree", 1))
	shards, others := int(r.number("parallelism.data_parallel_shard_degree", -1)), 1
	for _, axis := range []string{"tensor", "pipeline", "context"} {
		others *= max(1, int(r.number("parallelism."+axis+"_parallel_degree", 1)))
	}
	if shards < 1 {
		shards = max(1, r.o.Devices/max(1, others*replicas), int(r.number("parallelism.expert_parallel_degree", 1)))
		r.differ("parallelism.data_parallel_shard_degree", -1, fmt.Sprintf("is what devices leave: %d with --devices %d", shards, r.o.Devices))
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
	r.lone()
	if !on(r.all["validation.enable"]) {
		r.drop("validation is off", "train.eval_interval", "train.eval_steps")
	}
	if on(r.all["checkpoint.enable"]) || on(r.all["checkpoint.enable_checkpoint"]) {
		r.ours["checkpoint.dir"] = strings.TrimSuffix(fmt.Sprint(r.all["job.dump_folder"]), "/") + "/" + fmt.Sprint(r.all["checkpoint.folder"])
	} else {
		r.drop("checkpoints are off", "checkpoint.interval", "checkpoint.keep")
	}
	path := r.all["training.dataset_path"]
	if path == nil {
		path = "data/" + fmt.Sprint(r.all["training.dataset"])
	}
	r.ours["data.paths"] = []string{fmt.Sprint(path)}
	r.differ("training.dataset", r.all["training.dataset"], "data.paths wants files: text, JSON lines or Parquet")
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
