package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// AdapterUse is what a saved adapter is wanted for.
type AdapterUse int

// An adapter is added to the weights of its base, or computes beside them in a server.
const (
	Merged AdapterUse = iota
	Served
)

// String ends the sentence that says what cannot be done.
func (u AdapterUse) String() string { return [...]string{"added to weights", "served"}[u] }

// adapterKey says what becomes of a key of PEFT's LoraConfig for each use: + acts, . changes nothing that a saved
// adapter computes, and - is refused unless its value is one of off, which switch it off.
type adapterKey struct {
	uses string // of Merged and Served
	why  string // of a refusal, or why nothing changes
	off  []string
}

// What switches most keys off, and beginnings of training after which the base is as it was.
var (
	adapterOff   = []string{"null", "false", "[]", "{}", `""`}
	adapterBegun = []string{"null", "true", "false", `"gaussian"`, `"orthogonal"`, `"eva"`, `"mica"`}
)

const (
	adapterBeside  = "it computes what no weights have"
	adapterTrained = "it is for training alone"
	adapterFound   = "the file has what is adapted"
)

// adapterKeys are the keys of LoraConfig of peft 0.21 with those of PeftConfig, and what swift adds.
var adapterKeys = map[string]adapterKey{
	"peft_type": {uses: "++"}, "r": {uses: "++"}, "lora_alpha": {uses: "++"}, "use_rslora": {uses: "++"},
	"base_model_name_or_path": {uses: "+."}, "target_modules": {uses: ".+", why: adapterFound},
	"rank_pattern": {uses: "+-", why: "one rank is served"}, "alpha_pattern": {uses: "+-", why: "one alpha is served"},
	"use_dora":       {uses: "+-", why: "lengths of rows are not served"},
	"fan_in_fan_out": {uses: "+-", why: "matrices are served as [out in]"},
	"bias": {uses: "+-", why: "biases of the base are shared by all that are served",
		off: append([]string{`"none"`}, adapterOff...)},
	"modules_to_save":         {uses: "+-", why: "weights of the base are shared by all that are served"},
	"trainable_token_indices": {uses: "+-", why: "the table of the base is shared by all that are served"},
	"ensure_weight_tying":     {uses: "+.", why: "what could be tied is refused by its own key"},
	"lora_bias":               {uses: "+-", why: "an addition that is served has no bias"},
	"init_lora_weights": {uses: "--", why: "PEFT changes the base's weights before such a training; save the adapter by " +
		"save_pretrained(path_initial_model_for_weight_conversion=...), which makes it one for the base as it was",
		off: adapterBegun},

	"exclude_modules": {uses: "..", why: adapterFound}, "layers_to_transform": {uses: "..", why: adapterFound},
	"layers_pattern": {uses: "..", why: adapterFound},
	"lora_dropout":   {uses: "..", why: adapterTrained}, "inference_mode": {uses: "..", why: adapterTrained},
	"loftq_config": {uses: "..", why: "init_lora_weights switches it on"},
	"eva_config":   {uses: "..", why: adapterTrained}, "velora_config": {uses: "..", why: adapterTrained},
	"corda_config":      {uses: "..", why: "init_lora_weights switches it on"},
	"lora_ga_config":    {uses: "..", why: "init_lora_weights switches it on"},
	"monteclora_config": {uses: "..", why: "PEFT merges the means, and samples in training alone"},
	"qalora_group_size": {uses: "..", why: "use_qalora switches it on"},
	"megatron_config":   {uses: "..", why: "it is how PEFT shards"},
	"megatron_core":     {uses: "..", why: "it is how PEFT shards"},
	"runtime_config":    {uses: "..", why: "it is where PEFT computes"},
	"revision":          {uses: "..", why: "the base is named here"},
	"task_type":         {uses: "..", why: "it is PEFT's class"}, "auto_mapping": {uses: "..", why: "it is PEFT's class"},
	"peft_version": {uses: "..", why: "it is who wrote the file"},
	"lora_dtype":   {uses: "..", why: adapterTrained}, "lorap_lr_ratio": {uses: "..", why: adapterTrained},
	"lorap_emb_lr": {uses: "..", why: adapterTrained},

	"alora_invocation_tokens": {uses: "--", why: adapterBeside}, "arrow_config": {uses: "--", why: adapterBeside},
	"use_qalora":        {uses: "--", why: "its inputs are means of groups"},
	"use_bdlora":        {uses: "--", why: "its matrices are blocks"},
	"kasa_config":       {uses: "--", why: "PEFT cuts the base's weights before such a training"},
	"layer_replication": {uses: "--", why: "its model has layers more than once"},
	"target_parameters": {uses: "--", why: "experts have no adapters here"},
}

// CheckAdapter refuses a configuration of PEFT's with a key that changes what the adapter computes in a way that a
// use does not have, or that PEFT 0.21 does not know.
func CheckAdapter(all map[string]json.RawMessage, use AdapterUse) error {
	if kind := string(all["peft_type"]); kind != `"LORA"` {
		return fmt.Errorf("peft_type %s: only LORA can be %v", kind, use)
	}
	for _, key := range SortedKeys(all) {
		k, ok := adapterKeys[key]
		if !ok {
			k = adapterKey{uses: "--", why: "no key of PEFT 0.21"}
		}
		if k.off == nil {
			k.off = adapterOff
		}
		var value bytes.Buffer
		if err := json.Compact(&value, all[key]); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if k.uses[use] == '-' && !slices.Contains(k.off, value.String()) {
			return fmt.Errorf("%s: %s cannot be %v: %s", key, value.String(), use, k.why)
		}
	}
	return nil
}
