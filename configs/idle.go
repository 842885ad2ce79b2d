package configs

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs/source"
)

// idleSetting is a key that does nothing in some runs. Where it is given all the same, the run says so:
// whoever set it expects something of it.
type idleSetting struct {
	keys []string
	idle func(c *Config) bool
	why  string
}

// updates tells whether one of these optimizers updates parameters.
func updates(c *Config, kinds ...string) bool {
	o := &c.Run.Optimizer
	have := []string{o.Kind}
	if o.Kind == "muon" { // it leaves what is no matrix to AdamW
		have = append(have, "adamw")
	}
	for _, text := range o.Groups {
		if g, err := ParseGroup(text); err == nil && g.Kind != "" {
			have = append(have, g.Kind)
		}
	}
	return slices.ContainsFunc(have, func(k string) bool { return slices.Contains(kinds, k) })
}

// idleSettings are those that nothing else refuses.
var idleSettings = []idleSetting{
	{[]string{"optimizer.muon_momentum", "optimizer.muon_plain", "optimizer.muon_steps", "optimizer.muon_scale"},
		func(c *Config) bool { return !updates(c, "muon") }, "optimizer.kind is not muon"},
	{[]string{"optimizer.momentum"}, func(c *Config) bool { return !updates(c, "sgd") }, "optimizer.kind is not sgd"},
	{[]string{"optimizer.beta1", "optimizer.beta2"}, func(c *Config) bool {
		return !updates(c, "adamw", "lion", "schedule_free", "adafactor")
	}, "optimizer.kind has no such moments"},
	{[]string{"optimizer.moments_block"}, func(c *Config) bool { return c.Run.Optimizer.Moments != "8bit" },
		"optimizer.moments is not 8bit"},
	{[]string{"optimizer.min_lr"}, func(c *Config) bool { return c.Run.Schedule.Kind == "constant" },
		"schedule.kind is constant"},
	{[]string{"optimizer.encoder_lr_scale", "optimizer.projector_lr_scale", "plan.encoder.tp", "plan.encoder.ahead",
		"plan.encoder.patches", "plan.encoder.fill"}, func(c *Config) bool {
		return c.Model.ModelType != "" && c.Model.Vision.None()
	}, "the model has no encoder"},
	{[]string{"schedule.wsd_decay", "schedule.wsd_decay_steps"},
		func(c *Config) bool { return c.Run.Schedule.Kind != "wsd" }, "schedule.kind is not wsd"},
	{[]string{"schedule.warmup_init"}, func(c *Config) bool {
		return c.Run.Schedule.WarmupSteps == 0 && c.Run.Schedule.WarmupShare == 0
	}, "there is no warm-up"},
	{[]string{"train.loss_scale", "train.initial_loss_scale", "train.min_loss_scale", "train.loss_scale_window",
		"train.loss_scale_hysteresis"}, func(c *Config) bool { return c.Run.Train.Precision != "fp16" },
		"train.precision is not fp16"},
	{[]string{"train.eval_draw_steps", "train.eval_guidance"}, func(c *Config) bool {
		return len(c.Run.Train.EvalPrompts) == 0 || !c.Model.Denoises() //lfvet:kind before a model is built
	}, "nothing is drawn behind evaluations"},
	{[]string{"data.drop_last"}, func(c *Config) bool { return c.Run.Train.Epochs == 0 }, "train.epochs is 0"},
	{[]string{"lora.alpha", "lora.dropout", "lora.targets", "lora.merge", "lora.adapters_only", "lora.init"},
		func(c *Config) bool { return c.Run.LoRA.Rank == 0 }, "lora.rank is 0"},
	{[]string{"train.mtp_loss_weight"}, func(c *Config) bool {
		return c.Model.ModelType != "" && c.Model.MTPLayers == 0
	}, "the model has no layers of multi-token prediction"},
	{[]string{"checkpoint.load_optimizer", "checkpoint.load_rng"},
		func(c *Config) bool { return c.Run.Checkpoint.Load == "" }, "there is no checkpoint.load"},
	{[]string{"checkpoint.save_hf_path"}, func(c *Config) bool { return !c.Run.Checkpoint.SaveHF },
		"checkpoint.save_hf is false"},
	{[]string{"log.project"}, func(c *Config) bool { return len(c.Run.Log.Trackers) == 0 }, "there are no log.trackers"},
	{[]string{"log.tensor_values"}, func(c *Config) bool { return len(c.Run.Log.Tensors) == 0 }, "there are no log.tensors"},
	{[]string{"device_strict"}, func(c *Config) bool { return c.Run.Device == "cpu" }, "device is cpu"},
	{[]string{"log.tensor_steps"}, func(c *Config) bool {
		for _, text := range c.Run.Log.TensorSteps {
			if s, err := ParseSteps(text); err != nil || s.From <= int64(c.Run.Train.Steps) {
				return false
			}
		}
		return true
	}, "the run ends before the first of them"},
	{[]string{"plan.zero"}, func(c *Config) bool { return c.Run.Plan.Zero > 0 && c.Run.Plan.DP == 1 },
		"plan.dp is 1, and there is nothing to share"},
}

// Idle are notes of those keys that are given all the same: by a file or key=value, since scripts for Megatron give many
// flags that do nothing.
func (c *Config) Idle(why string, keys ...string) (notes []string) {
	for _, key := range keys {
		o := c.Origin(key)
		if o.Layer == source.LayerFile || o.Layer == source.LayerOverride && !strings.HasPrefix(o.Text, "--") {
			notes = append(notes, fmt.Sprintf("%s has no effect: %s", key, why))
		}
	}
	return notes
}

// noteIdle notes the settings that are given and do nothing, and a schedule that the run does not fit.
func (c *Config) noteIdle() {
	for _, s := range idleSettings {
		if s.idle(c) {
			c.Notices = append(c.Notices, c.Idle(s.why, s.keys...)...)
		}
	}
	t, s := &c.Run.Train, &c.Run.Schedule
	steps := s.DecaySteps
	if steps == 0 {
		steps = t.Steps
	}
	switch {
	case t.Epochs > 0: // their steps are not known yet
	case t.Steps > 0 && s.WarmupSteps >= t.Steps:
		c.Notices = append(c.Notices, fmt.Sprintf("schedule.warmup_steps = %d: the run's %d steps end before the "+
			"rate reaches optimizer.lr", s.WarmupSteps, t.Steps))
	case s.Kind == "wsd" && s.WSDDecaySteps+s.WarmupSteps > steps:
		c.Notices = append(c.Notices,
			fmt.Sprintf("schedule.wsd_decay_steps = %d: with a warm-up of %d they are more than the %d steps of "+
				"the schedule, so the rate jumps behind the warm-up", s.WSDDecaySteps, s.WarmupSteps, steps))
	}
}
