package quant

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// quantConfig is what a config.json says of quantized weights beyond what their tensors show.
type quantConfig struct {
	Method  string `json:"quant_method"`
	Format  string `json:"checkpoint_format"` // of GPTQ
	Version string `json:"version"`           // of AWQ
	Sym     bool   `json:"sym"`               // of GPTQ: every zero is the middle
	Block   []int  `json:"weight_block_size"` // of fp8: rows and columns
	Groups  map[string]struct {
		Weights struct {
			Block json.RawMessage `json:"block_structure"` // of compressed-tensors; old versions have a text
		} `json:"weights"`
	} `json:"config_groups"`
}

// block is the rows and columns of a block as far as the configuration says them, else 0.
func (c *quantConfig) block() (out [2]int) {
	said := c.Block
	for _, g := range c.Groups {
		var b []int
		if json.Unmarshal(g.Weights.Block, &b) == nil && b != nil {
			if len(c.Groups) > 1 && said != nil && !slices.Equal(said, b) {
				return out // groups differ: the shapes tell
			}
			said = b
		}
	}
	if len(said) == 2 {
		out = [2]int{said[0], said[1]}
	}
	return out
}

// read reads the config.json of a directory; a path without one says nothing.
func (c *quantConfig) read(path string) error {
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return nil // a single file, or a name for messages
	}
	text, err := checkpoint.ReadSmall(checkpoint.Published(path), "config.json", checkpoint.ConfigBytesMax)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all struct {
		Quantization json.RawMessage `json:"quantization_config"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return &checkpoint.Error{File: filepath.Join(path, "config.json"), Fault: checkpoint.Malformed, Why: "configuration",
			Err: err}
	}
	if all.Quantization == nil {
		return nil
	}
	if err := json.Unmarshal(all.Quantization, c); err != nil {
		return &checkpoint.Error{File: filepath.Join(path, "config.json"), Fault: checkpoint.Malformed, Why: "quantization_config",
			Err: err}
	}
	return nil
}
