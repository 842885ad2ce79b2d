package quant

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

// quantConfig is what a config.json says of quantized weights beyond what their tensors show.
type quantConfig struct {
	Method  string `json:"quant_method"`
	Format  string `json:"checkpoint_format"` // of GPTQ
	Version string `json:"version"`           // of AWQ
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
