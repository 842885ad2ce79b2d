package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/family/autoencoders"
	"github.com/lfactor/lfactor/stages/optim"
	"github.com/lfactor/lfactor/stages/texts"
)

// Low says in which precision layers multiply a weight, of kernels.Precisions; nil for all in the model's own.
func Low(c *configs.Config, m *family.Model) func(param string) int {
	p, err := kernels.PrecisionOf(c.Run.Train.LowPrecision)
	if err != nil {
		panic("fit: a precision that was checked: " + err.Error())
	}
	if p == 0 {
		return nil
	}
	takes, err := policy(c, m)
	if err != nil { // a run is checked before; what it has trained is read without its table too
		takes = func(string) bool { return true }
	}
	keep := slices.Clone(c.Run.Train.LowPrecisionKeep)
	return func(param string) int {
		if !takes(param) || still(c, param) {
			return 0
		}
		for _, pattern := range keep {
			if block.Match(pattern, param) {
				return 0
			}
		}
		return p
	}
}

// still reports whether a parameter is of an encoder that serves a model of diffusion as it is: it gives the same
// numbers ahead of training as in it.
func still(c *configs.Config, param string) bool {
	return strings.HasPrefix(param, autoencoders.Component+".") && c.Run.Diffusion.Latents == alive ||
		strings.HasPrefix(param, texts.Component+".") && !c.Run.Diffusion.TrainText
}

// Watch is when weights that are rounded are multiplied in the model's own type.
func Watch(c *configs.Config) kernels.Watch {
	a := &c.Run.Train.Adaptive
	return kernels.Watch{Limit: a.Limit, Lost: a.Lost, Every: a.Every, Stay: a.Stay}
}

// History is how many steps' greatest numbers the scales of products follow from, 0 where they are of now.
func History(c *configs.Config) int {
	p, err := kernels.PrecisionOf(c.Run.Train.LowPrecision)
	if err != nil || !kernels.Precisions[p].Delayed {
		return 0
	}
	return c.Run.Train.AmaxHistory
}

// Travel is the precision in which rows go to experts, 0 where that is their own.
func Travel(c *configs.Config) int {
	p, err := kernels.PrecisionOf(c.Run.Train.LowPrecision)
	if err != nil || !c.Run.Train.LowDispatch {
		return 0
	}
	return p
}

// travels holds train.low_precision_dispatch to the recipe and the model.
func (r rules) travels() {
	const key = "train.low_precision_dispatch"
	p := Travel(r.c)
	switch {
	case !r.c.Run.Train.LowDispatch:
	case !r.m.Spec.Mixes():
		r.at(key, "the model has no experts that rows go to", "remove it")
	case !kernels.Precisions[p].Encodes():
		r.at(key, "train.low_precision = "+kernels.Precisions[p].Name+" has no scales of blocks of a row in e4m3",
			"set it to block, block_pow2 or mxfp8")
	case Watch(r.c).On():
		r.at(key, "train.adaptive has products take numbers as they are, and rows would come rounded",
			"remove one of them")
	default:
		low, lora := Low(r.c, r.m), Lora(r.c)
		for _, p := range r.m.Params(lora) {
			adapts := strings.Contains(p.Name, ".lora_")
			if p.Experts && len(p.Shape) == 3 && !strings.Contains(p.Name, ".down_proj.") && (adapts ||
				low(p.Name) == 0) {
				r.at(key, p.Name+" multiplies rows as they are, and they would come rounded",
					"remove it, or round all that experts read")
				return
			}
		}
	}
}

// gathers holds train.low_precision_gather to the recipe.
func (r rules) gathers() {
	if !r.c.Run.Train.LowGather {
		return
	}
	p, err := kernels.PrecisionOf(r.c.Run.Train.LowPrecision)
	if Watch(r.c).On() {
		r.at("train.low_precision_gather",
			"train.adaptive has products take weights as they are, and they would come rounded", "remove one of them")
	}
	if of := kernels.Precisions[max(0, p)]; err == nil && (!of.Encodes() || of.Act.Scale == kernels.ScaleFloat) {
		r.at("train.low_precision_gather", "train.low_precision = "+of.Name+" has no powers of two for scales of "+
			"e4m3, with which a number that is rounded again stays", "set it to block_pow2 or mxfp8")
	}
}

// lowPrecision holds train.low_precision and the patterns behind it to the model.
func (r rules) lowPrecision() {
	const key = "train.low_precision"
	t := &r.c.Run.Train
	if History(r.c) == 0 && t.AmaxHistory != 1 {
		r.at("train.amax_history", "is not read: the scales of "+key+" = "+t.LowPrecision+" are of now", "remove it")
	}
	if History(r.c) > 0 && (t.Adaptive.Limit > 0 || t.Adaptive.Lost > 0) {
		r.at("train.adaptive", "it samples products whose scales are of now, and "+t.LowPrecision+" has those of steps before",
			"take tensor, or remove it")
	}
	if t.LowPrecision == "none" {
		if len(t.LowPrecisionKeep) > 0 {
			r.at(key+"_keep", "is not read: "+key+" is none", "remove it")
		}
		if a := t.Adaptive; a.Policy != "" || a.Limit > 0 || a.Lost > 0 {
			r.at("train.adaptive", "is not read: "+key+" is none", "remove it")
		}
		return
	}
	if l := Loss(r.c); Watch(r.c).On() && l != nil && l.Policy != nil {
		r.at("train.adaptive", "the sampler rounds all weights, and would draw from another policy", "remove it")
	}
	if t.Precision == "fp16" {
		r.at(key, "operands that are rounded have the range of bf16", "set train.precision to bf16")
	}
	var names []string
	for _, p := range r.m.Params(nil) {
		if (len(p.Shape) == 2 || p.Experts) && strings.HasSuffix(p.Name, ".weight") {
			names = append(names, p.Name)
		}
	}
	if !r.match(key+"_keep", t.LowPrecisionKeep, names) {
		return
	}
	if _, err := policy(r.c, r.m); err != nil {
		r.at("train.adaptive.policy", err.Error(),
			"name LoongForge's table, or write one by lfactor calibrate --precision")
		return
	}
	if frozen := Frozen(r.c); t.AmaxHistory != 1 && (Lora(r.c) != nil ||
		!slices.ContainsFunc(names, func(name string) bool { return !frozen(name) })) {
		r.at("train.amax_history", "is not read: layers that do not learn have scales of now", "remove it")
	}
	low := Low(r.c, r.m)
	if !slices.ContainsFunc(names, func(name string) bool { return low(name) > 0 }) {
		if t.Adaptive.Policy != "" {
			r.at("train.adaptive.policy", fmt.Sprintf("none of %d weights has a rule for so few tokens and plan.tp = %d",
				len(names), r.c.Run.Plan.TP), "set "+key+" to none")
			return
		}
		r.at(key+"_keep", fmt.Sprintf("it keeps all %d weights", len(names)), "name less")
	}
}

// averaging holds an optimizer that keeps an average of weights to the schedule, and to an average beside it.
func (r rules) averaging() {
	o := &r.c.Run.Optimizer
	if !optim.Averages(o.Kind) {
		if r.c.Run.Checkpoint.SaveHFAverage && o.EMA == 0 {
			r.at("checkpoint.save_hf_ema", "the run keeps no average of its weights", "set optimizer.ema, as 0.9999")
		}
		return
	}
	if o.EMA > 0 {
		r.at("optimizer.ema", o.Kind+" keeps an average of weights by itself", "remove it")
	}
	if kind := r.c.Run.Schedule.Kind; kind != "constant" {
		r.at("schedule.kind", o.Kind+" has a rate that does not fall, and schedule.kind is "+kind,
			"set it to constant; schedule.warmup_steps holds")
	}
}

// offloads holds plan.offload_optimizer to the optimizer: updates of whole matrices want their state at hand.
func (r rules) offloads() {
	o, err := optim.Get(r.c.Run.Optimizer.Kind)
	if err != nil || !r.c.Run.Plan.OffloadOptimizer || o.Turning == nil {
		return
	}
	if rest, err := optim.Get(o.Rest); err == nil && rest.Turning != nil {
		r.at("plan.offload_optimizer", o.Name+" keeps little state, and its updates want all of it", "remove it")
	}
}

// moments holds optimizer.moments to the optimizer.
func (r rules) moments() {
	o := &r.c.Run.Optimizer
	if o.Moments != optim.EightBit && o.MomentsBlock != 256 {
		r.at("optimizer.moments_block", "is not read: optimizer.moments is "+o.Moments, "remove it")
	}
	if o.Moments == "fp32" {
		return
	}
	of, err := optim.Get(o.Kind)
	if err == nil && of.Narrow == "" && of.Rest != "" {
		of, err = optim.Get(of.Rest)
	}
	if err == nil && of.Narrow == "" {
		r.at("optimizer.moments", o.Kind+" keeps its state in float32", "remove it, or take adamw")
	}
}
