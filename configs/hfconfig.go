package configs

import (
	"reflect"
	"strings"

	"github.com/lfactor/lfactor/configs/hf"
)

// HFConfig writes the model as the config.json of its family, for an export that has no source directory to
// copy it from. dtype is the weights' type by torch's name, such as bfloat16.
func (m Model) HFConfig(dtype string) []byte {
	values := hf.Values{}
	for _, k := range table().keys {
		if name, ok := strings.CutPrefix(k.Name, overrides+"."); ok && k.model {
			values[name] = k.field(&Run{}, &m).Interface()
		}
	}
	values["rope_scaling"], values["vision"] = m.RopeScaling.hf(), m.Vision.keys(&m)
	return hf.Encode(values, dtype)
}

// Number is what a model says of a key of numbers, as hidden_size; true is 1. It reports whether there is such a key.
func (m Model) Number(key string) (float64, bool) {
	k, ok := table().byName[overrides+"."+key]
	if !ok || !k.model {
		return 0, false
	}
	switch v := k.field(&Run{}, &m); v.Kind() {
	case reflect.Int:
		return float64(v.Int()), true
	case reflect.Float64:
		return v.Float(), true
	case reflect.Bool:
		if v.Bool() {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// ModelKey reports whether models have a key, as hidden_size.
func ModelKey(key string) bool {
	k := table().byName[overrides+"."+key]
	return k != nil && k.model
}

// hf is the scaling as config.json has it, nil for none.
func (r RopeScaling) hf() any {
	if r.None() {
		return nil
	}
	out := map[string]any{"rope_type": r.Type}
	for key, v := range map[string]float64{"factor": r.Factor, "low_freq_factor": r.LowFreqFactor,
		"high_freq_factor": r.HighFreqFactor, "beta_fast": r.BetaFast, "beta_slow": r.BetaSlow,
		"attention_factor": r.AttentionFactor, "mscale": r.MScale, "mscale_all_dim": r.MScaleAllDim} {
		if v != 0 {
			out[key] = v
		}
	}
	if len(r.Sections) > 0 {
		out["mrope_section"] = r.Sections
		if r.Interleaved {
			out["mrope_interleaved"] = true
		}
		if r.Type == "" {
			out["rope_type"] = "default"
		}
	}
	if r.Smooth {
		out["truncate"] = false
	}
	if len(r.LongFactor) > 0 {
		out["long_factor"], out["short_factor"] = r.LongFactor, r.ShortFactor
	}
	if r.OriginalMax != 0 {
		out["original_max_position_embeddings"] = r.OriginalMax
	}
	return out
}
