package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Names and limits of a PEFT directory.
const (
	AdapterName       = "adapter_model.safetensors"
	AdapterConfigName = "adapter_config.json"
	ConfigBytesMax    = 1 << 20
)

// AdapterPrefix begins every tensor name in a PEFT file: the model is wrapped twice. What follows is the
// name of the module in the model, then .lora_A.weight [r, in] or .lora_B.weight [out, r].
const AdapterPrefix = "base_model.model."

// TokenRows ends the name of rows [n, d] of a table that were trained by themselves; trainable_token_indices says which.
const TokenRows = ".token_adapter.trainable_tokens_delta"

// Targets is PEFT's target_modules: names of modules, or one regular expression.
type Targets struct {
	Names   []string // full names or their last parts
	Pattern string   // a Python regular expression on the full name; used if Names is nil
}

// UnmarshalJSON accepts a string, a list or null.
func (t *Targets) UnmarshalJSON(text []byte) error {
	*t = Targets{}
	if bytes.HasPrefix(text, []byte(`"`)) {
		return json.Unmarshal(text, &t.Pattern)
	}
	return json.Unmarshal(text, &t.Names)
}

// MarshalJSON is the inverse.
func (t Targets) MarshalJSON() ([]byte, error) {
	if t.Names == nil && t.Pattern != "" {
		return json.Marshal(t.Pattern)
	}
	return json.Marshal(t.Names)
}

// AdapterConfig is the part of adapter_config.json that says how a LoRA adapter computes: y = W x + alpha/r
// · B A x. Paper: arXiv:2106.09685. Rest has all keys, and those that it does not list are written back.
type AdapterConfig struct {
	BaseModel string  `json:"base_model_name_or_path"`
	R         int     `json:"r"`
	Alpha     float64 `json:"lora_alpha"`
	Dropout   float64 `json:"lora_dropout"`
	RSLoRA    bool    `json:"use_rslora"` // scales by alpha/√r instead, arXiv:2312.03732
	Reach
	// Ranks and Alphas are those of modules, by a regular expression on the name, that differ from R and
	// Alpha. They are written only: a file that has some is refused.
	Ranks  map[string]int     `json:"-"`
	Alphas map[string]float64 `json:"-"`

	Rest map[string]json.RawMessage `json:"-"`
}

// ReadAdapterConfig reads adapter_config.json of a PEFT directory. Variants of LoRA that would compute
// something else are an error, not ignored.
func ReadAdapterConfig(dir string) (AdapterConfig, error) { return ReadPEFT(dir, parseAdapterConfig) }

// ReadPEFT reads adapter_config.json of a PEFT directory by a function.
func ReadPEFT[T any](dir string, parse func(text []byte) (T, error)) (c T, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return c, err
	}
	defer root.Close()
	text, err := ReadSmall(root, AdapterConfigName, ConfigBytesMax)
	if err != nil {
		return c, err
	}
	if c, err = parse(text); err != nil {
		err = &Error{File: filepath.Join(dir, AdapterConfigName), Fault: Malformed, Why: "adapter configuration", Err: err}
	}
	return c, err
}

// parseAdapterConfig keeps settings that change no result for an export.
func parseAdapterConfig(text []byte) (c AdapterConfig, err error) {
	c.Rest, err = ParseAdapter(text, Served, &c)
	return c, err
}

// OpenAdapter opens the tensors of a PEFT directory.
func OpenAdapter(dir string) (*File, error) { return OpenFile(filepath.Join(dir, AdapterName)) }

// NewAdapterWriter begins a PEFT directory: adapter_config.json is written at once,
// adapter_model.safetensors, whose tensors must have PEFT's names, appears on Commit.
func NewAdapterWriter(dir string, c AdapterConfig, tensors []Info) (Sink, error) {
	for _, t := range tensors {
		if len(t.Name) <= len(AdapterPrefix) || t.Name[:len(AdapterPrefix)] != AdapterPrefix {
			return nil, fmt.Errorf("%s: tensor %s: PEFT's names begin with %s", dir, quoteOdd(t.Name), AdapterPrefix)
		}
	}
	text, err := c.encode()
	if err != nil {
		return nil, err
	}
	if err := OS.MkdirAll(dir); err != nil {
		return nil, err
	}
	if err := replaceFile(OS, filepath.Join(dir, AdapterConfigName), text); err != nil {
		return nil, err
	}
	f, err := newPlacedFile(OS, filepath.Join(dir, AdapterName), tensors)
	if err != nil {
		return nil, err
	}
	return &fileSink{file: f}, nil
}

// pipelineAdapterName is where load_lora_weights of diffusers' pipelines looks.
const pipelineAdapterName = "pytorch_lora_weights.safetensors"

// NewPipelineAdapterWriter begins diffusers' file of the adapters of one model of a pipeline in a folder,
// as the pipelines' save_lora_weights writes it: the configuration is in the file's metadata, each key
// behind prefix, the model's name and a dot, as are the tensors' names.
func NewPipelineAdapterWriter(dir, prefix string, c AdapterConfig, tensors []Info) (Sink, error) {
	all := map[string]any{}
	for key, v := range c.keys("") {
		all[prefix+key] = v
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, err
	}
	if err := OS.MkdirAll(dir); err != nil {
		return nil, err
	}
	f, err := newPlacedFile(OS, filepath.Join(dir, pipelineAdapterName), tensors,
		[2]string{"lora_adapter_metadata", string(text)})
	if err != nil {
		return nil, err
	}
	return &fileSink{file: f}, nil
}

// encode writes the keys PEFT needs and those kept in Rest, sorted.
func (c AdapterConfig) encode() ([]byte, error) {
	text, err := json.MarshalIndent(c.keys("CAUSAL_LM"), "", "  ")
	return append(text, '\n'), err
}

// keys are PEFT's of a model that does a task, "" for none of those that it knows.
func (c AdapterConfig) keys(task string) map[string]any {
	all := map[string]any{"peft_type": "LORA", "task_type": task, "bias": "none",
		"fan_in_fan_out": false, "inference_mode": true}
	if task == "" {
		all["task_type"] = nil
	}
	for key, v := range c.Rest {
		all[key] = v
	}
	all["base_model_name_or_path"], all["r"], all["lora_alpha"] = c.BaseModel, c.R, c.Alpha
	all["lora_dropout"], all["target_modules"], all["use_rslora"] = c.Dropout, c.Targets, c.RSLoRA
	if len(c.Ranks) > 0 {
		all["rank_pattern"], all["alpha_pattern"] = c.Ranks, c.Alphas
	}
	return all
}

// fileSink is one safetensors file as a Sink.
type fileSink struct {
	file *placedFile
	done bool
}

func (s *fileSink) WriteRanges(name string, ranges [][2]int, src []byte) error {
	return s.file.writeRanges(name, ranges, src)
}

// Commit gives the finished file its final name. Until then it lies under another, so that a crash
// leaves no half file that looks whole.
func (s *fileSink) Commit() error {
	if s.done {
		return nil
	}
	if err := s.file.finish(); err != nil {
		return err
	}
	s.done = true
	if err := s.file.fs.Rename(s.file.path+partial, s.file.path); err != nil {
		return err
	}
	return s.file.fs.SyncDir(filepath.Dir(s.file.path))
}

// Abort throws away what was written; after a commit it does nothing, so it can be deferred.
func (s *fileSink) Abort() error {
	if s.done {
		return nil
	}
	s.done = true
	return s.file.abort()
}
