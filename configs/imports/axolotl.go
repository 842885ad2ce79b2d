package imports

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// usualForms are what entries of data say that files of their form are read by here, too; "" is any value.
var usualForms = map[string]string{
	"split": "train", "roles_to_train": "[assistant]", "train_on_eos": "turn", "train_on_eot": "turn", "message_field_role": "from role",
	"message_field_content": "value content", "message_property_mappings": "map[content:value role:from] map[content:content role:role]",
	"field_messages": "messages conversations conversation", "field_chosen": "chosen", "field_rejected": "rejected", "field": "text",
	"text_column": "text", "field_thinking": "reasoning_content", "field_tools": "tools", "trust_remote_code": "", "ds_type": "", "shards": "", "preprocess_shards": "",
	"roles": "map[assistant:[assistant] system:[system] user:[user]]",
	"type":  "chat_template alpaca alpaca:chat sharegpt completion pretrain chatml chat_template.default alpaca_chat.load_qa",
}

// sources takes a list of data over: paths, and what each entry says of its samples.
func (r *reading) sources(key, ours string, v any) {
	var paths []string
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, d := range list {
		m, ok := d.(map[string]any)
		if !ok { // a name alone
			m = map[string]any{"path": d}
		}
		files, ok := m["data_files"].([]any)
		if !ok && m["data_files"] != nil {
			files = []any{m["data_files"]}
		}
		if files == nil && m["path"] != nil {
			files = []any{m["path"]}
		}
		for _, f := range files {
			path, _ := r.exists(fmt.Sprint(f))
			paths = append(paths, path)
		}
		r.entry(key, m)
	}
	if len(paths) == 0 {
		r.differ(key, v, "no path was found: set "+ours)
		paths = []string{"data"}
	}
	r.set(key, ours, paths)
	if slices.ContainsFunc(paths, func(p string) bool { _, here := r.exists(p); return !here }) {
		r.differ(key, fmt.Sprint(paths), "a name of the hub is none of a file: "+ours+" wants files that are here")
	}
}

// entry says what of one entry of data is not taken over.
func (r *reading) entry(key string, m map[string]any) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		value, full := fmt.Sprint(m[k]), key+"."+k
		usual, known := usualForms[k]
		switch {
		case k == "path" || k == "data_files":
			r.same(full, "another key's rule reads it")
		case m[k] == nil, known && (usual == "" || strings.Contains(" "+usual+" ", " "+value+" ")):
			r.same(full, "is what files of that form are read by here, too")
		case k == "type":
			r.differ(full, value, "lfactor knows alpaca, sharegpt and OpenAI's messages by their columns; others are named in docs/data.md")
		case k == "field" || k == "text_column":
			r.set(full, "data.text_key", value)
		case k == "field_messages":
			r.set(full, "data.message_key", value)
		case k == "split":
			r.differ(full, value, "is a part of the data: give files of that part")
		case k == "name":
			r.differ(full, value, "is a part of a set of the hub: give its files")
		default:
			r.differ(full, value, "is not read: docs/data.md has the forms of conversations that are")
		}
	}
}

func axolotlData(r *reading, key string, v any) { r.sources(key, "data.paths", v) }

func validation(r *reading, key string, v any) {
	if r.out.Tool == "llamafactory" {
		r.names(key, "data.valid", v)
		return
	}
	r.sources(key, "data.valid", v)
}

// corpus are texts to learn from whole.
func corpus(r *reading, key string, v any) {
	r.sources(key, "data.paths", v)
	r.set(key, "train.phase", "pretrain")
}

// axolotlPlugins says which of the tool's plugins change what is learnt.
func axolotlPlugins(r *reading, key string, v any) {
	list, _ := v.([]any) // another shape names none
	left := slices.DeleteFunc(slices.Clone(list), func(p any) bool {
		return slices.ContainsFunc([]string{"liger", "cut_cross_entropy", "kernels", "spectrum", "nd_parallel", "expert_parallel", "flex"}, func(w string) bool {
			return strings.Contains(strings.ToLower(fmt.Sprint(p)), w)
		})
	})
	if len(left) > 0 {
		r.differ(key, left, "a plugin is code of Axolotl's: nothing of it runs here")
		return
	}
	r.same(key, "chooses how it is carried out, and lfactor has its own ways")
}

func finishAxolotl(r *reading) {
	adapter := fmt.Sprint(r.all["adapter"])
	additions := adapter == "lora" || adapter == "qlora" || adapter == "llama-adapter"
	r.batches("micro_batch_size", "gradient_accumulation_steps")
	if on(r.all["lora_target_linear"]) { // all, whatever else is named
		r.set("lora_target_linear", "lora.targets", []string{"*"})
	}
	if r.all["warmup_steps"] == nil && r.all["warmup_ratio"] == nil && r.ours["schedule.kind"] != "constant" {
		r.set("warmup_ratio", "schedule.warmup_fraction", 0.03)
		r.differ("warmup_steps", nil, "was not given: 3 % of the steps stand for it; there they are 100 at most")
	}
	r.length("max_steps", "num_epochs", 1, math.Floor)
	for _, key := range [][2]string{{"saves_per_epoch", "checkpoint.interval"}, {"evals_per_epoch", "train.eval_interval"}} {
		switch each, steps := r.number(key[0], 0), r.number("max_steps", -1); {
		case each > 0 && steps > 0: // a share of the steps there, rounded up
			r.set(key[0], key[1], int(math.Ceil(steps/(each*r.number("num_epochs", 1)))))
		case r.all[key[0]] != nil:
			r.differ(key[0], r.all[key[0]], "passes have no number of steps before a run begins: set "+key[1])
		}
	}
	if r.ours["schedule.warmup_steps"] == 1 { // its learning rates do not begin with the greatest
		r.ours["schedule.warmup_steps"] = 2
	}
	r.ours["train.loss_average"] = "token" // as transformers' Trainer has it
	r.ours["checkpoint.save_hf"] = true
	r.precision(!additions)
	r.fromHub("base_model")
	switch adapter {
	case "<nil>", "":
		r.noAdditions()
	case "qlora":
		if r.ours["lora.base"] == nil {
			r.set("adapter", "lora.base", "nf4")
		}
	case "lora":
	default:
		r.differ("adapter", adapter, "only additions of low rank are trained here")
	}
	if additions && r.ours["lora.targets"] == nil && r.all["lora_target_modules"] == nil {
		r.differ("lora_target_modules", nil, "was not given: PEFT takes what it knows of the model's type; set lora.targets")
	}
	r.phase()
	r.settle()
}

// phase says what is learnt of documents: answers, unless all are texts.
func (r *reading) phase() {
	if r.ours["objective.kind"] != nil || r.ours["train.phase"] != nil {
		return
	}
	texts := false
	if list, ok := r.all["datasets"].([]any); ok && len(list) > 0 {
		m, _ := list[0].(map[string]any) // another shape is no text
		texts = m["type"] == "completion"
	}
	if !texts {
		r.ours["train.phase"] = "sft"
	}
}
