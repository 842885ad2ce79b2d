package run

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/hf"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/topology/machine"
)

func init() {
	configs.Hold(configs.Rule{Name: "weights", Files: true, Check: checkWeights})
	configs.Hold(configs.Rule{Name: "best", Check: checkBest})
	configs.Hold(configs.Rule{Name: "sets", Check: checkSets})
	configs.Hold(configs.Rule{Name: "validation", Check: checkValidation})
	configs.Hold(configs.Rule{Name: "weights that change", Check: checkTurns})
	configs.Hold(configs.Rule{Name: "pictures", Files: true, Check: checkPictures})
}

// checkBest is the rule for checkpoint.best: what is saved is evaluated.
func checkBest(cfg *configs.Config, at configs.At) {
	c, every := &cfg.Run.Checkpoint, cfg.Run.Train.EvalInterval
	switch {
	case !c.Best:
	case every == 0 || cfg.Run.Train.EvalSteps == 0:
		at("checkpoint.best", "train.eval_interval = 0 makes no evaluation whose loss would say which is best",
			"set an interval")
	case c.Interval == 0 || c.Interval%every != 0:
		at("checkpoint.best", fmt.Sprintf("checkpoint.interval = %d is no multiple of train.eval_interval = %d, so that "+
			"steps are saved that are not evaluated", c.Interval, every), "make it one")
	}
}

// checkValidation is the rule for train.eval_interval: there is something to evaluate on.
func checkValidation(cfg *configs.Config, at configs.At) {
	d := &cfg.Run.Data
	if !cfg.Run.Train.Evaluates() || len(d.Valid) > 0 || !d.Follow && (len(d.Split) < 2 || d.Split[1] > 0) {
		return
	}
	at("train.eval_interval", "there is no validation data: data.valid names none, and data.split sets none aside",
		"name files by data.valid, give data.split a second share as in [98, 2, 0], or set train.eval_interval=0")
}

// checkTurns is the rule for weights of data.paths that change: steps say when, and in each some source gives samples.
func checkTurns(cfg *configs.Config, at configs.At) {
	d, t := &cfg.Run.Data, &cfg.Run.Train
	if !d.Changes() {
		return
	}
	if t.Epochs > 0 || d.Follow {
		at("data.paths", "weights that change have no meaning for passes over each source (train.epochs), or with data.follow",
			"set train.steps, or give numbers")
	}
	if l := fit.Loss(cfg); l != nil && l.Policy != nil {
		at("data.paths", "weights change by steps, and prompts are drawn by rounds", "give numbers")
	}
	ramps := rampsOf(d.Paths)
	for _, r := range ramps {
		for _, turn := range append(r.Turns, dataset.Turn{Step: 1}) {
			sum := 0.0
			for i, p := range d.Paths {
				sum += ramps[i].At(p.Weight, float64(turn.Step))
			}
			if sum == 0 {
				at("data.paths", fmt.Sprintf("at step %d every weight is 0", turn.Step), "give some source a weight there")
			}
		}
	}
}

// rampsOf is how the weights of paths change.
func rampsOf(paths []configs.WeightPath) (out []dataset.Ramp) {
	for _, p := range paths {
		r := dataset.Ramp{Linear: p.Linear}
		for _, t := range p.Turns {
			r.Turns = append(r.Turns, dataset.Turn(t))
		}
		out = append(out, r)
	}
	return out
}

// checkSets is the rule for train.eval_set: it is the name of a set that is there.
func checkSets(cfg *configs.Config, at configs.At) {
	name, sets := cfg.Run.Train.EvalSet, configs.Sets(cfg.Run.Data.Valid)
	if name != "" && !slices.Contains(sets, name) {
		at("train.eval_set", fmt.Sprintf("data.valid has no set %q; its sets are %q", name, sets),
			"name one of them, or leave it out for the mean of all")
	}
}

// checkPictures is the rule for what encodes the images and captions of a model of diffusion: sizes are given,
// and folders are named, or lie beside the model, and are there. What is in them is read when a run begins.
func checkPictures(cfg *configs.Config, at configs.At) {
	d := &cfg.Run.Diffusion
	//lfvet:kind before a model is built its configuration alone tells what its rules are
	if !cfg.Model.Denoises() || fit.Acts(cfg) {
		return
	}
	if len(d.Sizes) == 0 {
		at("diffusion.sizes", "is not given", "write [256x256] for images of that size")
	}
	if fit.Autoencodes(cfg) {
		return
	}
	for _, f := range []struct{ key, given, beside, word string }{
		{"diffusion.autoencoder", d.Autoencoder, "vae", "pixels"},
		{"diffusion.text_encoder", d.Text, "text_encoder", "none"}} {
		switch dir := fit.Beside(cfg, f.given, f.beside); {
		case dir == f.word:
		case dir == "":
			at(f.key, fmt.Sprintf("is not given, and no %s lies beside the model", f.beside),
				fmt.Sprintf("name a folder, or %s", f.word))
		case !machine.Exists(filepath.Join(dir, "config.json")):
			at(f.key, fmt.Sprintf("%s has no config.json", dir), "name the folder that has it")
		}
	}
}

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
	for _, part := range [][2]string{{"model.encoder_path", c.Model.Encoder}, {"model.decoder_path", c.Model.Decoder}} {
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
