package quant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// mergeConfig is the part of adapter_config.json that says what an adapter adds to weights.
type mergeConfig struct {
	Kind   string  `json:"peft_type"`
	R      int     `json:"r"`
	Alpha  float64 `json:"lora_alpha"`
	Root   bool    `json:"use_rslora"`
	Dora   bool    `json:"use_dora"`
	Turned bool    `json:"fan_in_fan_out"`
	Base   string  `json:"base_model_name_or_path"`

	ranks, alphas []pattern
}

// pattern is an entry of rank_pattern or alpha_pattern.
type pattern struct {
	of    *regexp.Regexp
	value float64
}

// mergeUnsupported are keys with which an adapter computes something that no weights have.
var mergeUnsupported = map[string][]string{
	"alora_invocation_tokens": {"null"}, "trainable_token_indices": {"null"}, "layer_replication": {"null"},
	"lora_bias": {"false", "null"}, "use_qalora": {"false", "null"}, "use_bdlora": {"false", "null"},
	"target_parameters": {"null", "[]"},
}

// readMergeConfig reads the configuration of an adapter that is to be added to weights.
func readMergeConfig(dir string) (*mergeConfig, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	text, err := checkpoint.ReadSmall(root, checkpoint.AdapterConfigName, checkpoint.ConfigBytesMax)
	if err != nil {
		return nil, err
	}
	c, err := parseMergeConfig(text)
	if err != nil {
		return nil, &checkpoint.Error{File: filepath.Join(dir, checkpoint.AdapterConfigName), Fault: checkpoint.Malformed,
			Why: "adapter configuration", Err: err}
	}
	return c, nil
}

func parseMergeConfig(text []byte) (*mergeConfig, error) {
	var c mergeConfig
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	if c.Kind != "LORA" {
		return nil, fmt.Errorf("peft_type %q: only LORA can be added to weights", c.Kind)
	}
	for _, key := range checkpoint.SortedKeys(mergeUnsupported) {
		var value bytes.Buffer
		if raw, ok := all[key]; ok {
			if err := json.Compact(&value, raw); err != nil ||
				!slices.Contains(mergeUnsupported[key], value.String()) {
				return nil, fmt.Errorf("%s: %s cannot be added to weights", key, value.String())
			}
		}
	}
	if c.R < 1 {
		return nil, fmt.Errorf("r: %d, want at least 1", c.R)
	}
	var err error
	if c.ranks, err = patterns(all["rank_pattern"]); err == nil {
		c.alphas, err = patterns(all["alpha_pattern"])
	}
	return &c, err
}

// patterns reads a pattern for each key, in the order of the file: PEFT takes the first that matches.
func patterns(text json.RawMessage) (out []pattern, err error) {
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	err = checkpoint.EachKey(text, func(key string, dec *json.Decoder) error {
		p := pattern{}
		if err := dec.Decode(&p.value); err != nil {
			return err
		}
		of := `^(?:(?:.*\.)?(?:` + key + `))$`
		if strings.HasPrefix(key, "^") {
			of = key
		}
		if p.of, err = regexp.Compile(of); err != nil {
			return fmt.Errorf("pattern %q: %w", key, err)
		}
		out = append(out, p)
		return nil
	})
	return out, err
}

// patternOf is the value of the first pattern that matches a module, else other.
func patternOf(all []pattern, module string, other float64) float64 {
	for _, p := range all {
		if p.of.MatchString(module) {
			return p.value
		}
	}
	return other
}

// scale is what the product of a module's matrices is multiplied with; rank is theirs.
func (c *mergeConfig) scale(module string, rank int) (float64, error) {
	if r := patternOf(c.ranks, module, float64(c.R)); r != float64(rank) {
		return 0, fmt.Errorf("rank %g, and the matrices have %d", r, rank)
	}
	alpha := patternOf(c.alphas, module, c.Alpha)
	if c.Root {
		return alpha / math.Sqrt(float64(rank)), nil
	}
	return alpha / float64(rank), nil
}

// IsAdapter reports whether a directory has an adapter of PEFT's.
func IsAdapter(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, checkpoint.AdapterConfigName))
	_, without := os.Stat(filepath.Join(dir, checkpoint.AdapterName))
	return err == nil && without == nil
}

// AdapterBase is what an adapter names as the model that it adds to.
func AdapterBase(dir string) (string, error) {
	c, err := readMergeConfig(dir)
	if err != nil {
		return "", err
	}
	return c.Base, nil
}
