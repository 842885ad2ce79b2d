package imports

import (
	"fmt"
	"math"
	"strings"
)

func finishTRL(r *reading) {
	r.batches("per_device_train_batch_size", "gradient_accumulation_steps")
	r.length("max_steps", "num_train_epochs", 3, math.Ceil)
	r.ours["train.loss_average"] = "token"
	r.ours["checkpoint.save_hf"] = true
	if on(r.all["fp16"]) && r.out.Usual["bf16"] != nil { // what stands for it, unless the other is asked for
		delete(r.out.Usual, "bf16")
		delete(r.all, "bf16")
	}
	dtype := fmt.Sprint(r.all["dtype"], r.all["torch_dtype"])
	r.precision(strings.Contains(dtype, "bfloat16") && !on(r.all["use_peft"]))
	r.fromHub("model_name_or_path")
	if r.out.Tool == "trl" && !on(r.all["assistant_only_loss"]) {
		r.differ("assistant_only_loss", r.all["assistant_only_loss"],
			"conversations are learnt whole there, prompts and completions by their completions; here by the answers: data.train_on_prompt takes all")
	}
	if !on(r.all["use_peft"]) {
		r.noAdditions()
	} else if r.ours["lora.targets"] == nil && r.all["lora_target_modules"] == nil {
		r.differ("lora_target_modules", nil, "was not given: PEFT takes what it knows of the model's type; set lora.targets")
	}
	r.settle()
}
