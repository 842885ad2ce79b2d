package run

import (
	"fmt"
	"path/filepath"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/topology/machine"
)

func init() { configs.Hold(configs.Rule{Name: "weights", Files: true, Check: checkWeights}) }

// weightsDir is the Hugging Face directory that initial weights are read from: checkpoint.load where that
// is one, else model.path; "" for neither.
func weightsDir(c *configs.Run) string {
	if c.Checkpoint.Load != "" && machine.Exists(filepath.Join(c.Checkpoint.Load, "config.json")) {
		return c.Checkpoint.Load
	}
	return c.Model.Path
}

// checkWeights is the rule for where a run begins: what model.init, model.path, checkpoint.load and the
// paths of parts say must go together, and directories that are to have weights must have them.
func checkWeights(cfg *configs.Config, at configs.At) {
	c := &cfg.Run
	dir := weightsDir(c)
	has := dir != "" && hasWeights(dir)
	switch c.Model.Init {
	case "random":
		if c.Checkpoint.Load != "" && c.Checkpoint.Load != c.Checkpoint.Dir {
			at("checkpoint.load", "weights are to be loaded, but model.init is random",
				"set model.init: load, or remove checkpoint.load")
		}
	case "auto":
		if c.Model.Path != "" && !has {
			at("model.path", fmt.Sprintf("%s has no safetensors weights%s", dir, hf.Partial(dir)),
				"set model.init: random to train from random weights")
		}
	default:
		if !has {
			at("model.init", fmt.Sprintf("load, but %q has no safetensors weights%s", dir, hf.Partial(dir)),
				"set model.init: random, or model.path to a directory with weights")
		}
	}
	for _, part := range [][2]string{{"model.encoder_path", c.Model.Encoder}, {"model.decoder_path",
		c.Model.Decoder}} {
		switch key, dir := part[0], part[1]; {
		case dir == "":
		case c.Model.Init == "random":
			at(key, "weights are to be loaded, but model.init is random", "remove one of the two")
		case !hasWeights(dir):
			at(key, fmt.Sprintf("%s has no safetensors weights%s", dir, hf.Partial(dir)),
				"name a Hugging Face directory that has them")
		}
	}
}

// firstFault is the first fault that a rule finds, for who begins without the check of files; nil for none.
func firstFault(cfg *configs.Config, rule func(*configs.Config, configs.At)) (err error) {
	rule(cfg, func(key, why, try string) {
		if err == nil {
			err = cfg.Fault(key, why, try)
		}
	})
	return err
}
