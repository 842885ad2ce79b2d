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
		return
	}
	m.Spec.Objective = &family.Objective{Loss: l, Params: objective.Params{Beta: o.Beta, Gamma: o.Gamma,
		Smoothing: o.Smoothing, Text: o.Text, Center: o.Center}}
	m.Modalities = append(m.Modalities, family.AnswerModality)
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
		case of && !l.Reference:
			r.at(k.Name, fmt.Sprintf("objective.kind = %s needs no reference", l.Name), "remove it")
		case !of && !slices.Contains(l.Reads, key):
			r.at(k.Name, fmt.Sprintf("is not read by objective.kind = %s, which reads %s", l.Name,
				strings.Join(l.Reads, ", ")), "remove it")
		}
	}
	if l == nil {
		return
	}
	p, t := &r.c.Run.Plan, &r.c.Run.Train
	for _, k := range []struct {
		key, why, try string
		set           bool
	}{
		{"plan.cp", "a loss over answers needs all tokens of an answer on one rank",
			"use plan.tp, plan.pp or plan.dp",
			p.CP > 1},
		{"plan.chunk_size", "a loss over answers needs all tokens of an answer at once", "remove it",
			p.ChunkSize > 0},
		{"train.mtp_loss_weight", "further tokens have no preference", "set it to 0", t.MTPWeight > 0 &&
			r.m.Spec.MTP > 0},
		{"objective.kind", "models of images have no loss over answers yet", "remove it", r.m.Vision != nil},
		{"objective.kind", "the model is one of diffusion", "remove it", r.m.Denoiser != nil},
		{"data.balance", "a pair of answers is not shared out by its tokens", "remove it",
			r.c.Run.Data.Balance},
	} {
		if k.set {
			r.at(k.key, k.why, k.try)
		}
	}
}
