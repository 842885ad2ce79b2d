package quant

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// mergeConfig is the part of adapter_config.json that says what an adapter adds to weights.
type mergeConfig struct {
	R      int     `json:"r"`
	Alpha  float64 `json:"lora_alpha"`
	Root   bool    `json:"use_rslora"`
	Dora   bool    `json:"use_dora"`
	Turned bool    `json:"fan_in_fan_out"`
	Base   string  `json:"base_model_name_or_path"`

	Saved  []string        `json:"modules_to_save"`
	Tokens json.RawMessage `json:"trainable_token_indices"`

	checkpoint.Reach
	Ranks  patterns `json:"rank_pattern"`
	Alphas patterns `json:"alpha_pattern"`
}

// patterns are the entries of rank_pattern or alpha_pattern.
type patterns []pattern

type pattern struct {
	of    *regexp.Regexp
	value float64
}

// readMergeConfig reads the configuration of an adapter that is to be added to weights.
func readMergeConfig(dir string) (*mergeConfig, error) {
	return checkpoint.ReadPEFT(dir, parseMergeConfig)
}

func parseMergeConfig(text []byte) (*mergeConfig, error) {
	var c mergeConfig
	_, err := checkpoint.ParseAdapter(text, checkpoint.Merged, &c)
	return &c, err
}

// UnmarshalJSON reads a pattern for each key, in the order of the file: PEFT takes the first that matches.
func (all *patterns) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	return checkpoint.EachKey(text, func(key string, dec *json.Decoder) (err error) {
		p := pattern{}
		if err := dec.Decode(&p.value); err != nil {
			return err
		}
		if strings.Contains(key, "{,") {
			return fmt.Errorf("pattern %q: write {0, in place of {,", key) // Go takes it for letters
		}
		// PEFT's get_pattern_key: the whole name, or what follows a dot, so that ^ is the whole name's beginning
		if p.of, err = regexp.Compile(`^(.*\.)?(` + key + `)$`); err != nil {
			return fmt.Errorf("pattern %q: %w", key, err)
		}
		*all = append(*all, p)
		return nil
	})
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
	if r := patternOf(c.Ranks, module, float64(c.R)); r != float64(rank) {
		return 0, fmt.Errorf("rank %g, and the matrices have %d", r, rank)
	}
	alpha := patternOf(c.Alphas, module, c.Alpha)
	if c.Root {
		return alpha / math.Sqrt(float64(rank)), nil
	}
	return alpha / float64(rank), nil
}

// rowsOf are the rows of a table that were trained by themselves: of the embedding, or by names of modules.
func (c *mergeConfig) rowsOf(module string) (rows []int) {
	if json.Unmarshal(c.Tokens, &rows) == nil {
		return rows
	}
	var all map[string][]int
	if json.Unmarshal(c.Tokens, &all) == nil {
		for _, name := range checkpoint.SortedKeys(all) {
			if strings.HasSuffix(module, name) {
				return all[name]
			}
		}
	}
	return nil
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
