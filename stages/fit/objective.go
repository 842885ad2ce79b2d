package fit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/family"
)

func init() {
	for _, name := range objective.Names() {
		source.Offer(source.Losses, name)
	}
}

// Loss is the loss over answers that a run trains by, nil for the loss of a language model.
func Loss(c *configs.Config) *objective.Loss { return objective.Lookup(c.Run.Objective.Kind) }

// aims gives a model the loss over answers that the run has.
func aims(c *configs.Config, m *family.Model) {
	l, o := Loss(c), &c.Run.Objective
	if l == nil {
		if names := c.Run.Data.Named(); names != nil {
			m.ByName(len(names))
		}
		return
	}
	m.Spec.Objective = &family.Objective{Loss: l, Params: lossParams(l, o)}
	if l.Logits != nil {
		m.Modalities = append(m.Modalities, family.TeacherModality(m.Spec.Vocab))
		return
	}
	m.Modalities = append(m.Modalities, family.AnswerModality)
}

// lossParams are the parameters of a loss, its own where the section leaves them to it.
func lossParams(l *objective.Loss, o *configs.Objective) objective.Params {
	p := objective.Params{Beta: o.Beta, Gamma: o.Gamma, Smoothing: o.Smoothing, Text: o.Text, Center: o.Center,
		ClipLow: o.ClipLow, ClipHigh: o.ClipHigh, KL: o.KL, Desirable: o.Desirable, Undesirable: o.Undesirable,
		Discount: o.Discount, Lambda: o.Lambda, Value: o.Value, ClipValue: o.ClipValue, Mix: o.Mix,
		Temperature: o.Temperature, Pooling: float64(max(0, slices.Index(objective.Poolings, o.Pooling)))}
	if l.Policy != nil {
		if p.ClipLow < 0 {
			p.ClipLow = l.Policy.ClipLow
		}
		if p.ClipHigh < 0 {
			p.ClipHigh = l.Policy.ClipHigh
		}
	}
	return p
}

// LossParams are the parameters of a run's loss over answers.
func LossParams(c *configs.Config) objective.Params { return lossParams(Loss(c), &c.Run.Objective) }

// Compares reports whether a run's loss reads a reference policy.
func Compares(c *configs.Config) bool {
	l := Loss(c)
	return l != nil && l.Compares(lossParams(l, &c.Run.Objective))
}

// objective holds the section objective to the loss, the model and the plan. A loss over answers needs all
// rows of an answer in one place.
func (r rules) objective() {
	const section = "objective."
	l := Loss(r.c)
	for _, k := range configs.Keys() {
		key, ok := strings.CutPrefix(k.Name, section)
		if !ok || key == "kind" || r.c.Usual(k.Name) {
			continue
		}
		switch of := key == "reference" || key == "cache"; {
		case l == nil:
			r.at(k.Name, "objective.kind is none", "remove it, or set objective.kind")
		case of && !Compares(r.c):
			r.at(k.Name, fmt.Sprintf("objective.kind = %s needs no reference", l.Name), "remove it")
		case !of && !slices.Contains(l.Reads, key):
			r.at(k.Name, fmt.Sprintf("is not read by objective.kind = %s, which reads %s", l.Name,
				strings.Join(l.Reads, ", ")), "remove it")
		}
	}
	r.rollouts(l)
	if l == nil {
		return
	}
	if l.Logits != nil && r.c.Run.Objective.Reference == "" {
		r.at("objective.reference", fmt.Sprintf("objective.kind = %s learns from a teacher, and the weights that "+
			"the run begins with teach nothing", l.Name), "name the teacher's directory")
	}
	p, t := &r.c.Run.Plan, &r.c.Run.Train
	for _, k := range []struct {
		key, why, try string
		set           bool
	}{
		{"plan.cp", "a loss over answers needs all tokens of an answer on one rank", "use plan.tp, plan.pp or plan.dp",
			p.CP > 1},
		{"plan.tp", "a teacher's logits lie whole on every rank", "use plan.pp or plan.dp",
			p.TP > 1 && l.Logits != nil},
		{"plan.chunk_size", "a loss over answers needs all tokens of an answer at once", "remove it", p.ChunkSize > 0},
		{"train.mtp_loss_weight", "further tokens have no preference", "set it to 0", t.MTPWeight > 0 &&
			r.m.Spec.MTP > 0},
		{"objective.kind", "models of images have no loss over answers yet", "remove it", r.m.Vision != nil},
		{"objective.kind", "the model is one of diffusion", "remove it", !r.m.Task().Writes},
		{"data.balance", "a pair of answers is not shared out by its tokens", "remove it", r.c.Run.Data.Balance},
	} {
		if k.set {
			r.at(k.key, k.why, k.try)
		}
	}
}

// rollouts holds the sections rollout and reward to the loss.
func (r rules) rollouts(l *objective.Loss) {
	draws, c := l != nil && l.Policy != nil, &r.c.Run
	for _, k := range configs.Keys() {
		if strings.HasPrefix(k.Name, "rollout.") && !draws && !r.c.Usual(k.Name) {
			r.at(k.Name, "objective.kind draws no answers", "remove it")
		}
	}
	for _, key := range []string{"turns", "role", "processes", "wait", "action", "observation"} {
		name := "rollout." + key
		switch served := c.Rollout.Served(); {
		case !draws || r.c.Usual(name):
		case len(c.Rollout.Environment) == 0:
			r.at(name, "there is no rollout.environment", "remove it, or set rollout.environment")
		case !served && (key == "action" || key == "observation"):
			r.at(name, "rollout.environment is a program, which says texts", "remove it, or give the address of a "+
				"server of OpenEnv's protocol, http://HOST:PORT")
		}
	}
	switch {
	case !draws && c.Reward.Kind != "none":
		r.at("reward.kind", "objective.kind draws no answers", "remove it")
		return
	case !draws:
		return
	case l.Policy.Unjudged && c.Reward.Kind != "none":
		r.at("reward.kind", fmt.Sprintf("objective.kind = %s reads no rewards", l.Name), "remove it")
	case l.Policy.Unjudged && c.Objective.Reference == "":
		r.at("objective.reference", fmt.Sprintf("objective.kind = %s learns from a teacher, and the weights that "+
			"the run begins with teach nothing", l.Name), "name the teacher's directory")
	case l.Policy.Unjudged:
	case c.Reward.Kind == "none":
		r.at("reward.kind", "says not what drawn answers are worth", "set it, for example to exact")
	}
	for _, k := range []struct {
		key, why, try string
		set           bool
	}{
		{"train.global_batch", fmt.Sprintf("%d answers of a step are no whole groups of %d", c.Train.GlobalBatch,
			c.Rollout.Group), "take a multiple of rollout.group", c.Train.GlobalBatch%c.Rollout.Group != 0},
		{"train.spike_norm", "answers are drawn for a step, which other samples do not take", "set it and " +
			"train.spike_loss to 0", c.Train.SpikeNorm > 0 || c.Train.SpikeLoss > 0},
		{"rollout.max_tokens", fmt.Sprintf("%d leave no room for a prompt in %d", c.Rollout.Max, c.Data.SeqLen),
			"raise data.seq_len", c.Rollout.Max+1 >= c.Data.SeqLen},
		{"reward.kind", "there is no environment that gives rewards", "set rollout.environment",
			c.Reward.Kind == "environment" && len(c.Rollout.Environment) == 0},
		{"rollout.ahead", "the model has no layer for further tokens", "set model.overrides.num_nextn_predict_layers " +
			"where model.path has one, or remove it", c.Rollout.Ahead > 0 && r.c.Model.MTPLayers == 0},
		{"rollout.ahead", "the layer for further tokens is read from model.path, and there is none", "set model.path",
			c.Rollout.Ahead > 0 && c.Model.Path == ""},
		{"plan.procs", "answers are drawn in the process that trains", "set it to 1", c.Plan.Procs > 1},
		{"device", "answers are drawn on the processor", "set it to cpu", c.Device != "cpu"},
		{"data.valid", "an evaluation of drawn answers is not there yet", "remove it", len(c.Data.Valid) > 0},
		{"train.precision", "half precision with a scaled loss is not there for drawn answers", "use bf16",
			c.Train.Precision == "fp16"},
	} {
		if k.set {
			r.at(k.key, k.why, k.try)
		}
	}
}
