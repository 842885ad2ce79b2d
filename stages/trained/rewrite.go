package trained

import (
	"cmp"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/exit"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/gguf"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/topology/machine"
)

// Form is what a Hugging Face directory is written as.
type Form struct {
	DType string // f32, f16 or bf16; "" leaves types as they are
	Shard int64  // bytes of a file; 0 is the usual
	// Quantize is a form of checkpoint.Quantizers that linear layers are rounded to, or with Calibration a method
	// of calibrate.Methods; "" is none.
	Quantize    string
	Calibration *Calibration
	// Journal lets a conversion that was interrupted go on; nil is of one that does not.
	Journal *checkpoint.Journal
}

func (f Form) shard() int64 {
	if f.Shard > 0 {
		return f.Shard
	}
	return ShardBytes
}

// Rewrite writes a Hugging Face directory anew: in another type, in other files, and with weights of few
// bits as numbers. adapter is a directory of PEFT's whose additions come to the weights, "" for none.
func Rewrite(dir, adapter, dst string, f Form) error {
	files, err := checkpoint.OpenDir(dir)
	if err != nil {
		return err
	}
	var src checkpoint.Source = files
	defer func() { _ = src.Close() }() // it is only read
	plain, err := quant.Dequantized(src, dir)
	if err != nil {
		return err
	}
	whole := plain == src
	src = plain
	keys := map[string]json.RawMessage{"quantization_config": nil}
	if adapter != "" {
		merged, err := quant.Merge(src, adapter, baseOf(dir))
		if err != nil {
			return err
		}
		if src = merged; merged.Untied {
			keys["tie_word_embeddings"] = json.RawMessage("false")
		}
		if merged.Words > 0 {
			keys["vocab_size"] = json.RawMessage(strconv.Itoa(merged.Words))
		}
	}
	if f.DType == "" && !whole {
		f.DType = ownType(dir)
	}
	if f.DType != "" {
		cast, err := checkpoint.Cast(src, f.DType, InFull(dir, f.DType)...)
		if err != nil {
			return err
		}
		src = cast
	}
	if f.Quantize != "" {
		few, bits, err := quantize(src, dir, f)
		if err != nil {
			return err
		}
		src, keys["quantization_config"] = few, bits
	}
	if err := WriteFolder(dst, src, dir, f); err != nil {
		return err
	}
	if keys["vocab_size"] != nil && !machine.Exists(filepath.Join(adapter, "config.json")) {
		if _, err := checkpoint.CopySideFiles(adapter, dst); err != nil { // the tokenizer that has the further words
			return err
		}
	}
	return setKeys(filepath.Join(dst, "config.json"), keys)
}

// conv1D says by form why a model keeps its layers as numbers whose linear layers are all Conv1D, [in out]: what reads it
// takes the places of nn.Linear. bitsandbytes alone takes Conv1D, and no such form is written.
var conv1D = map[string]string{"fp8": "transformers 5.24 puts FP8Linear in the place of nn.Linear alone",
	"gptq": "matrices are calibrated as [out in] alone", "awq": "matrices are calibrated as [out in] alone"}

// quantize shows the linear layers of a directory's model in few bits.
func quantize(src checkpoint.Source, dir string, f Form) (checkpoint.Source, json.RawMessage, error) {
	c, err := configs.ReadModel(dir)
	if err != nil {
		return nil, nil, err
	}
	m, err := build(c)
	if err != nil {
		return nil, nil, err
	}
	if _, err := m.OpenWeights(src, dir); err != nil { // takes the layout that the directory has
		return nil, nil, err
	}
	_, rounded := m.Rounded()
	if _, turned := m.Modules(); len(rounded) == 0 && slices.Contains(slices.Collect(maps.Values(turned)), true) {
		return nil, nil, exit.Usagef("%s: --quantize %s: its layers are Conv1D, kept as [in out], and %s; export it as GGUF, "+
			"or with --dtype bf16", dir, f.Quantize, cmp.Or(conv1D[f.Quantize], "compressed-tensors 0.20 packs nn.Linear alone"))
	}
	if f.Calibration != nil {
		return calibrated(src, dir, f)
	}
	return quant.Quantize(src, f.Quantize, func(name string) bool { return rounded[name] })
}

// Merge adds a directory of PEFT's to the model that it is of and writes that to dst. base is the model: a
// Hugging Face directory, the name of a repository in the cache, or "" for what the adapter names.
func Merge(adapter, base, dst string, f Form) error {
	if base == "" {
		var err error
		if base, err = quant.AdapterBase(adapter); err != nil {
			return err
		}
		if base == "" {
			return exit.Usagef("%s does not say which model it adds to: name it by --base", adapter)
		}
	}
	dir, err := hf.Resolve(base, os.Getenv)
	if err != nil {
		return err
	}
	if strings.HasSuffix(dir, gguf.Ext) {
		return exit.Usagef("--base %s: convert it to a Hugging Face directory first", base)
	}
	if vacant(dir) {
		if hint := hf.Absent(base, os.Getenv); hint != "" {
			return exit.Usagef("the base model of %s: %s; or name it by --base", adapter, hint)
		}
		return exit.Usagef("the base model of %s, %s, is not here: name it by --base", adapter, base)
	}
	if err := Whole(dir); err != nil {
		return err
	}
	return Rewrite(dir, adapter, dst, f)
}

// baseOf tells how a directory keeps the weights of transformers' modules, where its model is one that we have; of
// others the names have to be the same.
func baseOf(dir string) quant.Base {
	c, err := configs.ReadModel(dir)
	if err != nil {
		return quant.Base{}
	}
	m, err := build(c)
	if err != nil {
		return quant.Base{}
	}
	var b quant.Base
	b.Names, b.Turned = m.Modules()
	if m.Spec.Tie {
		b.Table, b.Head = m.Source(family.EmbedName+".weight").Name, m.Source(family.HeadName+".weight").Name
	}
	return b
}

// ownType is the type that a config.json names, else bf16, in which quantized models are published whole.
func ownType(dir string) string {
	var keys struct {
		Torch string `json:"torch_dtype"`
		Type  string `json:"dtype"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(text, &keys)
	}
	for short, long := range map[string]string{"f32": "float32", "f16": "float16"} {
		if err == nil && (keys.Torch == long || keys.Torch == "" && keys.Type == long) {
			return short
		}
	}
	return "bf16"
}

// setKeys writes keys of a config.json anew; nil is that it has none of a name. Those of words are set where its text
// model has its own too.
func setKeys(path string, to map[string]json.RawMessage) error {
	if !machine.Exists(path) {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var keys, inner map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	before := maps.Clone(keys)
	for key, v := range to {
		if keys[key] = v; v == nil {
			delete(keys, key)
		}
	}
	words := to["tie_word_embeddings"] != nil || to["vocab_size"] != nil
	if words && json.Unmarshal(keys["text_config"], &inner) == nil && inner != nil {
		for _, key := range []string{"tie_word_embeddings", "vocab_size"} {
			if to[key] != nil && (inner[key] != nil || key == "vocab_size") {
				inner[key] = to[key]
			}
		}
		if before["vocab_size"] == nil {
			delete(keys, "vocab_size")
		}
		if keys["text_config"], err = json.Marshal(inner); err != nil {
			return err
		}
	}
	if reflect.DeepEqual(keys, before) {
		return nil
	}
	return writeKeys(path, keys)
}
