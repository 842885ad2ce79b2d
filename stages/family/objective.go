package family

import (
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
)

// Objective is what training makes of a decoder's rows in place of the loss of a language model. It is set
// after the model is built. Its data, beside targets, of which rows of prompts have one too:
//
//	obj.seq [rows]     the number of the row's sequence, -1 for none
//	obj.weight [rows]  the share of the row's sample in the step, 0 outside answers
//	obj.more [rows objective.Columns]
type Objective struct {
	Loss   *objective.Loss
	Params objective.Params
}

// ScoreName is the head of a model of rewards, as transformers' classes for sequences have it.
const ScoreName = "score"

const scoreParam = ScoreName + ".weight"

// Scores reports whether the model has a head of one number in place of that of a language model.
func (m *Model) Scores() bool { return m.Spec.Objective != nil && m.Spec.Objective.Loss.Score }

// Embeds reports whether the model gives vectors of texts and has no head.
func (m *Model) Embeds() bool { return m.Spec.Objective != nil && m.Spec.Objective.Loss.Vectors != nil }

// Headless reports whether the head of a language model is no part of the model.
func (m *Model) Headless() bool { return m.Scores() || m.Embeds() }

// valued reports whether the model has a head of one number, beside or in place of its own.
func (m *Model) valued() bool {
	return m.Spec.Objective != nil && (m.Spec.Objective.Loss.Score || m.Spec.values() != nil)
}

// values is the loss of a head of values beside a policy, nil for none.
func (s *Spec) values() *objective.Loss {
	if s.Objective == nil || s.Objective.Loss.Policy == nil {
		return nil
	}
	return objective.Lookup(s.Objective.Loss.Policy.Value)
}

// objective ends the model: h is what the head of a language model reads, and final what it was made of.
func (s *Spec) objective(r *block.Rec, h, final *grad.Value) {
	t, n, o := r.T, r.Shape.Rows, s.Objective
	if o.Loss.Logits != nil {
		z := t.Linear32(h, s.output(r), nil)
		if s.LogitCap > 0 {
			z = t.Scale(t.Act(t.Scale(z, 1/s.LogitCap), kernels.Tanh), s.LogitCap)
		}
		t.Loss(t.Divergence(z, t.Data(teacherData, tensor.F32, n, s.Vocab), t.Data("weights", tensor.F32, n), o.Loss,
			o.Params))
		return
	}
	seq, weight := t.Data("obj.seq", tensor.I32, n), t.Data("obj.weight", tensor.F32, n)
	more := t.Data("obj.more", tensor.F32, n, objective.Columns)
	if o.Loss.Vectors != nil {
		t.Loss(t.Contrast(final, seq, weight, more, o.Loss, o.Params))
		return
	}
	x, z, sign := (*grad.Value)(nil), (*grad.Value)(nil), -1.0
	if o.Loss.Score {
		x, sign = s.score(r, final), 1
	} else {
		x = t.TokenNLL(h, s.output(r), t.Data("targets", tensor.I32, n), s.LogitCap)
		if o.Loss.Policy == nil && s.LogitCap == 0 { // capped ones have no such mean
			z = t.MeanLogits(h, s.output(r))
		}
	}
	loss := t.Objective(x, seq, weight, more, o.Loss, o.Params, sign)
	t.Observed(loss, z)
	t.Loss(loss)
	if v := s.values(); v != nil {
		t.Loss(t.Objective(s.score(r, final), seq, weight, more, v, o.Params, 1))
	}
}

// score is one number a row, [rows] in float32.
func (s *Spec) score(r *block.Rec, final *grad.Value) *grad.Value {
	w := r.T.Param(scoreParam, []int{1, s.Hidden}, -1, 1, true)
	return r.T.View(r.T.Linear32(final, w, nil), r.Shape.Rows)
}
