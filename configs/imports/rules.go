package imports

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// rules are those that tables name.
var rules = map[string]rule{
	"targets": targets, "modules": modules, "optimizer": optimizer, "decay": decay,
	"loraplus": loraplus, "warmup": warmup, "least": least, "bestBy": bestBy, "held": held, "zero": zero, "fsdp": fsdp,
	"recompute": recompute, "clipped": clipped, "wandb": wandb, "validation": validation,
	"sources": axolotlData, "corpus": corpus, "template": template, "axolotlPlugins": axolotlPlugins, "frozen": frozen,
	"reports": reports, "converters": converters,
}

// plain is a number that was written as a word, as 1e-5 is in YAML 1.1, and anything else as it is.
func plain(v any) any {
	if s, ok := v.(string); ok {
		if x, err := strconv.ParseFloat(s, 64); err == nil && strings.ContainsAny(s, "eE.") {
			return x
		}
	}
	return v
}

// on reports whether a switch is on, and off whether a value asks for nothing.
func on(v any) bool {
	s := strings.ToLower(fmt.Sprint(v))
	return v != nil && (s == "true" || s == "yes" || s == "auto" || s == "1" || s == "full")
}

func off(v any) bool {
	switch strings.ToLower(fmt.Sprint(v)) {
	case "<nil>", "false", "no", "none", "", "[]", "map[]", "0", "-1", "off":
		return true
	}
	return false
}

// number is one of theirs, or what stands for it.
func (r *reading) number(key string, none float64) float64 {
	switch x := plain(r.all[key]).(type) {
	case int:
		return float64(x)
	case int64:
		return float64(x)
	case float64:
		return x
	}
	return none
}

// batches sets both sizes of a batch: theirs are of a device and of how often gradients are added up.
func (r *reading) batches(micro, adds string) {
	m, n := int(r.number(micro, 1)), int(r.number(adds, 1))
	if all := int(r.number("batch_size", 0)); r.all[adds] == nil && all > 0 { // Axolotl's older way
		n = max(1, all/m)
	}
	others := 1
	for _, key := range []string{"plan.tp", "plan.cp", "plan.pp"} {
		if v, ok := r.ours[key].(int); ok {
			others *= max(1, v)
		}
	}
	shard, copies := int(r.number("dp_shard_size", 1)), int(r.number("dp_replicate_size", 1))
	experts, _ := r.ours["plan.ep"].(int) // none without
	dp := max(1, r.o.Devices/others, shard*copies, experts)
	r.set(micro, "train.micro_batch", m)
	r.set(adds, "train.global_batch", m*n*dp)
	if dp > 1 {
		r.set("dp_shard_size", "plan.dp", dp)
	}
	if shard > 1 {
		r.set("dp_shard_size", "plan.zero", 3)
		if copies > 1 {
			r.set("dp_replicate_size", "plan.zero_ranks", shard)
		}
	}
}

// length sets the number of steps, or of passes where that is not said; usual is what stands for these there.
// Where steps are known, a share of them in which the rate rises becomes their number.
func (r *reading) length(steps, epochs string, usual float64, round func(float64) float64) {
	n := r.number(steps, -1)
	if n <= 0 {
		r.set(epochs, "train.epochs", r.number(epochs, usual))
		return
	}
	r.set(steps, "train.steps", int(n))
	r.same(epochs, "the number of steps stands before it")
	if share, ok := r.ours["schedule.warmup_fraction"].(float64); ok {
		for from, taken := range r.out.Taken {
			if taken[0] == "schedule.warmup_fraction" {
				delete(r.ours, taken[0])
				r.out.Taken[from] = nil
				r.set(from, "schedule.warmup_steps", int(round(share*n)))
			}
		}
	}
}

// precision sets the type of weights and activations by their switches.
func (r *reading) precision(whole bool) {
	for _, c := range []struct{ ours, keys string }{{"bf16", "bf16 bfloat16 pure_bf16"}, {"fp16", "fp16 float16"}} {
		for _, key := range strings.Fields(c.keys) {
			if on(r.all[key]) && r.ours["train.precision"] == nil {
				r.set(key, "train.precision", c.ours)
				if whole {
					r.differ(key, r.all[key], "weights themselves have sixteen bits there; here they learn in float32 and are computed with in "+c.ours)
				}
			}
		}
	}
}

// fromHub lets a name that is of no folder here be fetched from the hub.
func (r *reading) fromHub(key string) {
	name := fmt.Sprint(r.all[key])
	if i, err := os.Stat(name); err == nil && i.IsDir() {
		return
	}
	if strings.Count(name, "/") == 1 && !strings.HasPrefix(name, ".") {
		r.set(key, "model.path", "hf://"+name)
	}
	r.differ(key, name, "is no folder here: hf:// fetches it from the hub where the cache has it not; a folder may stand there, too")
}

// noAdditions takes settings of adapters away, which train all weights.
func (r *reading) noAdditions() {
	for key := range r.ours {
		if strings.HasPrefix(key, "lora.") {
			r.drop("no additions are trained: all weights are", key)
		}
	}
}

// bestBy says which metric decides on the best checkpoint where it is not the loss.
func bestBy(r *reading, key string, v any) {
	if name := fmt.Sprint(v); name != "loss" && name != "eval_loss" {
		r.differ(key, v, "checkpoint.best goes by the loss of evaluations alone")
		return
	}
	r.same(key, "checkpoint.best goes by that loss")
}

// held sets aside a part for validation, given as a share.
func held(r *reading, key string, _ any) {
	switch share := r.number(key, 0); {
	case share == 0:
		r.same(key, "nothing is set aside here either")
	case share < 1:
		held := math.Round(1000*share) / 10
		r.set(key, "data.split", []float64{100 - held, held, 0})
	default:
		r.differ(key, r.all[key], "is a number of samples; data.split takes shares, as [98, 2, 0]")
	}
}

// targets names layers that get additions, and modules those that are trained whole. A list has ends of names, and a word
// may be a regular expression on whole ones, as PEFT has it.
func targets(r *reading, key string, v any) { r.layers(key, "lora.targets", v) }

func modules(r *reading, key string, v any) { r.layers(key, "lora.modules_to_save", v) }

func (r *reading) layers(key, ours string, v any) {
	var names, out []string
	if list, ok := v.([]any); ok {
		for _, n := range list {
			names = append(names, fmt.Sprint(n))
		}
	} else if text := fmt.Sprint(v); strings.ContainsAny(text, `\[(|`) {
		r.differ(key, v, "is a regular expression; "+ours+" has patterns with *, as *.layers.*.q_proj, on the names of tensors in files")
		return
	} else {
		names = strings.Split(text, ",")
	}
	for _, n := range names {
		switch n = strings.TrimSpace(n); {
		case n == "":
		case n == "all" || n == "all-linear":
			out = append(out, "*")
		case strings.Contains(n, "."):
			out = append(out, "*."+n)
		default:
			out = append(out, n) // a pattern without a dot is of the last part of a name
		}
	}
	if len(out) > 0 {
		r.set(key, ours, out)
	}
}

// zero sets what replicas share out by the number in the name of a file of DeepSpeed's.
func zero(r *reading, key string, v any) {
	name := strings.ToLower(fmt.Sprint(v))
	for n := range 4 {
		if strings.Contains(name, fmt.Sprintf("z%d", n)) || strings.Contains(name, fmt.Sprintf("zero%d", n)) {
			r.set(key, "plan.zero", n)
			if strings.Contains(name, "offload") {
				r.set(key, "plan.offload_optimizer", true)
			}
			return
		}
	}
	r.differ(key, v, "its name does not say which ZeRO it asks for: set plan.zero")
}

// fsdp shares all out, as ZeRO 3 does, unless its words say less.
func fsdp(r *reading, key string, v any) {
	switch words := strings.ToUpper(fmt.Sprint(v)); {
	case strings.Contains(words, "SHARD_GRAD_OP"):
		r.set(key, "plan.zero", 2)
	case strings.Contains(words, "NO_SHARD"):
		r.set(key, "plan.zero", 0)
	case off(v):
		r.same(key, "is off there, as here")
	case r.ours["plan.zero"] != nil:
		r.same(key, "another key's rule reads it")
	default:
		r.set(key, "plan.zero", 3)
		if strings.Contains(words, "OFFLOAD") {
			r.set(key, "plan.offload_optimizer", true)
		}
		if strings.Contains(words, "HYBRID") {
			r.differ(key, v, "shares out within hosts: set plan.zero_ranks to the devices of one")
		}
	}
}

// recompute computes activations again; offload keeps what it begins from in host memory.
func recompute(r *reading, key string, v any) {
	switch text := fmt.Sprint(v); {
	case strings.HasPrefix(text, "offload"):
		r.set(key, "plan.recompute", "full")
		r.set(key, "plan.offload", true)
	case on(v):
		r.set(key, "plan.recompute", "full")
	case r.ours["plan.recompute"] == nil:
		r.set(key, "plan.recompute", "none")
	default:
		r.same(key, "another key asks for it")
	}
}

// loraplus gives the second matrix of additions a higher rate (arXiv:2402.12354).
func loraplus(r *reading, key string, v any) {
	if off(v) {
		r.same(key, "is off there, as here")
		return
	}
	r.set(key, "optimizer.groups", []string{fmt.Sprintf("*.lora_B.weight lr=%g", r.number(key, 1))})
}

// warmup is a number of steps, or below 1 a share of them, as transformers has it since version 5.
func warmup(r *reading, key string, v any) {
	if n := r.number(key, 0); n > 0 && n < 1 {
		r.set(key, "schedule.warmup_fraction", n)
	} else {
		r.set(key, "schedule.warmup_steps", int(n))
	}
	r.drop("warmup_steps stands before it", map[bool]string{true: "schedule.warmup_steps", false: "schedule.warmup_fraction"}[r.number(key, 0) > 0 && r.number(key, 0) < 1])
}

// least is the rate at the end, as a share of the greatest.
func least(r *reading, key string, _ any) {
	r.set(key, "optimizer.min_lr", math.Round(r.number(key, 0)*r.number("learning_rate", 0)*1e15)/1e15)
}

var decays = "cosine=cosine linear=linear constant=constant constant_with_warmup=constant polynomial=polynomial " +
	"inverse_sqrt=inverse-square-root warmup_stable_decay=wsd cosine_with_min_lr=cosine"

// decay is the shape of the learning rate.
func decay(r *reading, key string, v any) {
	if fmt.Sprint(v) == "constant" { // that one has no rise, whatever is said of it
		r.all["warmup_steps"], r.all["warmup_ratio"] = nil, nil
		delete(r.ours, "schedule.warmup_fraction")
	}
	r.word(key, "schedule.kind", decays, v)
}

// optimizer takes an optimizer over, with moments in eight bits where its name says so.
func optimizer(r *reading, key string, v any) {
	name := strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(fmt.Sprint(v)), "optimizernames."), "paged_")
	switch base, bits := strings.CutSuffix(name, "_8bit"); {
	case strings.HasPrefix(base, "adamw") && bits && base != "adamw_anyprecision":
		r.set(key, "optimizer.moments", "8bit")
	case name == "adamw_torch_4bit":
		r.differ(key, v, "moments have eight bits at least here: optimizer.moments")
		r.set(key, "optimizer.moments", "8bit")
	case strings.HasPrefix(base, "lion"):
		r.set(key, "optimizer.kind", "lion")
		if bits {
			r.differ(key, v, "Lion's moments are float32 here")
		}
	case strings.HasPrefix(name, "schedule_free_adamw"):
		r.set(key, "optimizer.kind", "schedule_free")
	case name == "adafactor": // as transformers makes it
		r.set(key, "optimizer.kind", name)
		r.set(key, "optimizer.adafactor.fixed", true)
	case name == "sgd":
		r.set(key, "optimizer.kind", name)
		r.set(key, "optimizer.momentum", 0.0)
	default:
		r.word(key, "optimizer.kind", "adamw_torch= adamw_torch_fused= adamw_torch_xla= adamw_hf= adamw= adam= adamw_32bit= optimi_adamw= flash_adamw= muon=muon", name)
	}
}

// lone takes settings away that say how ranks share, where there is one.
func (r *reading) lone() {
	for axis, words := range map[string]string{"plan.tp": "plan.sequence_parallel", "plan.cp": "plan.cp_layout"} {
		if n := fmt.Sprint(r.ours[axis]); n == "<nil>" || n == "1" {
			r.drop("there is nothing to share with one rank", words)
		}
	}
}

// settle takes settings away that the optimizer does not have.
func (r *reading) settle() {
	r.lone()
	switch r.ours["optimizer.kind"] {
	case "lion":
		r.drop("the optimizer has none", "optimizer.eps")
	case "sgd", "adafactor":
		r.drop("the optimizer has none", "optimizer.eps", "optimizer.beta1", "optimizer.beta2")
	}
	for key := range r.ours {
		section, _, _ := strings.Cut(key, ".")
		if section == "objective" && r.ours["objective.kind"] == nil || key == "train.qat_group" && r.ours["train.qat"] == nil {
			r.drop("the rest of the file makes it void", key)
		}
	}
	if smoothing := r.ours["objective.smoothing"]; r.ours["objective.kind"] == "dpo" && smoothing != nil {
		if r.drop("is off there, as here", "objective.smoothing"); !off(smoothing) && r.out.Tool == "llamafactory" {
			r.ours["objective.kind"] = "dpo_smoothed"
			r.set("dpo_label_smoothing", "objective.smoothing", smoothing)
		} else if !off(smoothing) {
			r.differ("label_smoothing", smoothing, "is passed over by TRL's sigmoid loss; objective.kind: dpo_smoothed takes it")
		}
	}
	switch r.ours["objective.kind"] {
	case "dpo", "dpo_hinge", "dpo_smoothed", "dpo_robust", "ipo", "orpo", "simpo", "reward", "kto":
		if n, ok := r.ours["data.seq_len"].(int); ok { // both answers, or the one to another prompt, are one sample
			r.ours["data.seq_len"] = 2 * n
		}
	}
	switch r.ours["objective.kind"] {
	case "grpo", "dapo", "dr_grpo", "cispo":
		if r.all["trl.reward_funcs"] == nil {
			r.differ("reward_funcs", nil, "reward.kind says what answers are worth here: set it")
		}
	default:
		for key := range r.ours {
			if strings.HasPrefix(key, "rollout.") || key == "objective.kl" || strings.HasPrefix(key, "objective.clip_") {
				r.drop("the objective draws no answers", key)
			}
		}
	}
	if r.ours["data.split"] == nil && r.ours["data.valid"] == nil {
		r.drop("there is no data of validation", "train.eval_interval", "train.patience", "checkpoint.best")
	}
	if patience := r.ours["train.patience"]; patience != nil && r.ours["train.eval_interval"] == nil {
		r.differ("train.patience", patience, "counts evaluations: set it with train.eval_interval")
		r.drop("there are no evaluations by steps", "train.patience", "checkpoint.best")
	}
	for _, key := range []string{"train.eval_interval", "checkpoint.interval"} {
		if share, ok := r.ours[key].(float64); ok && share < 1 {
			for from, taken := range r.out.Taken {
				if taken[0] == key {
					r.differ(from, share, "is a share of the steps; "+key+" is their number")
				}
			}
			r.drop("a share of the steps", key)
		}
	}
}

// clipped bounds a ratio of probabilities from below, and from above where nothing else is said.
func clipped(r *reading, key string, v any) {
	r.set(key, "objective.clip_low", plain(v))
	if r.all[strings.TrimSuffix(key, "epsilon")+"epsilon_high"] == nil {
		r.set(key, "objective.clip_high", plain(v))
	}
}

// wandb writes records for W&B, under its project.
func wandb(r *reading, key string, v any) {
	r.set(key, "log.project", fmt.Sprint(v))
	r.set(key, "log.trackers", []string{"wandb"})
	r.differ(key, v, "records are written below log.dir: wandb sync sends them")
}

// reports are what transformers' reports go to.
func reports(r *reading, key string, v any) {
	var out []string
	for _, name := range strings.FieldsFunc(fmt.Sprint(v), func(c rune) bool { return strings.ContainsRune("[], ", c) }) {
		switch name {
		case "wandb", "mlflow":
			out = append(out, name)
		case "none", "tensorboard":
		default:
			r.differ(key, name, "no records are written for it; log.trackers has those that are")
		}
	}
	if out == nil {
		r.same(key, "no tracker is named that lfactor writes for; events of TensorBoard are always written")
		return
	}
	r.set(key, "log.trackers", out)
}

// template is a chat template by name.
func template(r *reading, key string, v any) {
	if t := fmt.Sprint(v); strings.HasPrefix(t, "tokenizer_default") || t == "default" {
		r.same(key, "the tokenizer's own chat template is taken")
		return
	}
	r.differ(key, v, "the tokenizer's own chat template is taken; data.template names another")
}

// frozen are parts of a model with vision that learn nothing.
func frozen(r *reading, key string, v any) {
	if off(v) {
		r.same(key, "is off there, as here")
		return
	}
	part := map[string]string{"freeze_vision_tower": "*visual.blocks.*", "freeze_multi_modal_projector": "*merger.*", "freeze_language_model": "*language_model.*"}[key]
	r.differ(key, v, "set freeze by the names of the weights, as ["+part+"]; additions learn in lora.targets alone")
}

// exists is a path beside the file, if there is one.
func (r *reading) exists(path string) (string, bool) {
	for _, p := range []string{path, filepath.Join(r.dir, path)} {
		if _, err := os.Stat(p); err == nil {
			return p, true
		}
	}
	return path, false
}
