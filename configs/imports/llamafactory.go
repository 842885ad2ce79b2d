package imports

import (
	"fmt"
	"math"
)

func finishLlamafactory(r *reading) {
	r.batches("per_device_train_batch_size", "gradient_accumulation_steps")
	r.length("max_steps", "num_train_epochs", 3, math.Ceil)
	r.ours["train.loss_average"] = "token" // as transformers' Trainer has it
	if s := fmt.Sprint(r.all["eval_strategy"]); s != "steps" {
		r.drop("evaluations follow eval_strategy", "train.eval_interval")
		if s == "epoch" {
			r.differ("eval_strategy", s, "passes have no number of steps before a run begins: set train.eval_interval")
		}
	}
	r.ours["checkpoint.save_hf"] = true
	r.precision(on(r.all["pure_bf16"]))
	r.fromHub("model_name_or_path")
	r.stage()
	r.tuning()
	if !on(r.all["disable_gradient_checkpointing"]) {
		r.set("disable_gradient_checkpointing", "plan.recompute", "full")
	}
	if r.all["dataset"] != nil {
		r.names("dataset", "data.paths", r.all["dataset"])
	}
	if on(r.all["packing"]) && !on(r.all["neat_packing"]) {
		r.differ("packing", true, "attention crosses no borders of documents here, as with neat_packing there")
	}
	if s := fmt.Sprint(r.all["save_strategy"]); s == "epoch" {
		r.differ("save_strategy", s, "passes have no number of steps before a run begins: set checkpoint.interval")
	}
	if n, ok := r.all["pissa_iter"]; ok && r.ours["lora.init"] != nil {
		r.ours["lora.init"] = map[bool]string{true: "pissa", false: fmt.Sprintf("pissa_niter_%v", n)}[r.number("pissa_iter", 16) < 0]
	}
	if base := r.ours["lora.base"]; base == "nf4" && fmt.Sprint(r.all["quantization_type"]) == "fp4" {
		r.set("quantization_bit", "lora.base", "fp4")
	}
	r.settle()
}

// stage is what a run learns.
func (r *reading) stage() {
	stage := fmt.Sprint(r.all["stage"])
	if stage != "dpo" {
		r.drop("pairs are not compared in this stage", "objective.kind")
	}
	switch stage {
	case "pt":
		r.set("stage", "data.kind", "auto")
		if r.out.Usual["packing"] != nil { // texts are packed there
			r.set("packing", "data.packing", true)
		}
	case "sft", "<nil>":
		r.set("stage", "train.phase", "sft")
	case "rm":
		r.set("stage", "objective.kind", "reward")
	case "dpo":
		if r.ours["objective.kind"] == nil {
			r.set("stage", "objective.kind", "dpo")
		}
	case "kto":
		r.set("stage", "objective.kind", "kto")
	default:
		r.differ("stage", stage, "is trained otherwise here: docs/post-training.md")
	}
}

// tuning is which weights learn.
func (r *reading) tuning() {
	kind := fmt.Sprint(r.all["finetuning_type"])
	if kind != "lora" && kind != "<nil>" && kind != "oft" {
		if r.noAdditions(); kind == "freeze" {
			r.differ("finetuning_type", kind, "name what is not trained in freeze")
		}
		return
	}
	if r.ours["lora.rank"] == nil {
		r.set("lora_rank", "lora.rank", 8) // as it has it
	}
	if r.all["lora_alpha"] == nil {
		r.set("lora_alpha", "lora.alpha", 2*r.number("lora_rank", 8)) // as it has it
	}
	if kind == "oft" {
		r.differ("finetuning_type", kind, "orthogonal additions are not trained here: additions of low rank stand in their place")
	}
	if r.ours["lora.targets"] == nil {
		r.set("lora_target", "lora.targets", []string{"*"})
	}
}
