package trained

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/checkpoint/quant"
)

// Whole holds a Hugging Face directory to its config.json: a tensor that is missing, has another shape, is of no
// layer, or has codes that cannot be read as numbers is a *checkpoint.Error. Of a model that we have not, nothing is
// said.
func Whole(dir string) error {
	c, err := configs.ReadModel(dir)
	if err != nil {
		return nil //nolint:nilerr // no model of ours: the probe says that it compares nothing
	}
	m, err := build(c)
	if err != nil {
		return nil //nolint:nilerr // the same
	}
	m.DropMTP()
	src, err := checkpoint.OpenDir(dir)
	if err != nil {
		return err
	}
	defer src.Close() //nolint:errcheck // it is only read
	plain, err := quant.Dequantized(src, dir)
	if err != nil {
		return err
	}
	if _, err := m.OpenWeights(src, dir); err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, t := range m.HFShapes() {
		wanted[t.Name] = true
	}
	var errs []error
	for _, t := range plain.Tensors() {
		if _, float := checkpoint.FloatDecoder(t.DType); wanted[t.Name] && float == nil {
			errs = append(errs, &checkpoint.Error{File: t.File, Tensor: t.Name, Fault: checkpoint.Misshapen,
				Why: "codes of " + string(t.DType) + " whose form config.json does not say (quantization_config)"})
		}
	}
	return errors.Join(errs...)
}

// Parts of names of tensors that transformers keeps in float32 whatever type a model is loaded in, by model_type
// (_keep_in_fp32_modules_strict of transformers 5.24), and those that it keeps so in float16 alone
// (_keep_in_fp32_modules).
var (
	gates    = []string{"e_score_correction_bias", "gate.weight"}
	inFull32 = map[string][]string{"deepseek_v2": {"gate.weight"}, "deepseek_v3": gates, "deepseek_v32": gates,
		"ernie4_5_moe": gates, "ernie4_5_moe_vl": gates, "ernie4_5_vl_moe": gates, "glm4_moe": gates, "glm_moe_dsa": gates,
		"kimi_k2": gates}
	inFull16 = map[string][]string{"deepseek_v32": {"indexer.weights_proj"}, "glm_moe_dsa": {"indexer.weights_proj"},
		"gpt_oss": {"norm"}}
)

// InFull are parts of names of tensors of a Hugging Face directory's model that stay in float32 in a type.
func InFull(dir, dtype string) (parts []string) {
	var keys struct {
		Type string `json:"model_type"`
		Text struct {
			Type string `json:"model_type"`
		} `json:"text_config"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil || json.Unmarshal(text, &keys) != nil || dtype != "bf16" && dtype != "f16" {
		return nil
	}
	for _, kind := range []string{keys.Type, keys.Text.Type} {
		if parts = append(parts, inFull32[kind]...); dtype == "f16" {
			parts = append(parts, inFull16[kind]...)
		}
	}
	return parts
}
