package run

import (
	"encoding/json"
	"fmt"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/family"
)

// queries counts the queries of a step. Where each of them is alone with its positive in its microbatch there
// is nothing to learn from.
func (a *answers) queries(batches []dataset.Batch) (n float64, err error) {
	texts := 0
	for i := range batches {
		here, own := 0, 0.
		if err := a.roles(&batches[i], func(_ int, _ place, role float32) {
			if role == objective.Query {
				own++
			} else {
				here++
			}
		}); err != nil {
			return 0, err
		}
		texts, n = max(texts, here), n+own
	}
	if n > 0 && texts < 2 {
		return 0, fmt.Errorf("objective.kind = %s: every query of the step is alone with its positive in its "+
			"microbatch, and there is no text to tell it from: raise train.micro_batch, or give negatives", a.loss.Name)
	}
	return n, nil
}

// roles calls f for the texts of a batch with their roles.
func (a *answers) roles(b *dataset.Batch, f func(k int, p place, role float32)) (fault error) {
	a.each(b, func(k int, p place) {
		var mark format.AnswerMark
		if err := json.Unmarshal(p.mark, &mark); err != nil {
			fault = fmt.Errorf("a text's mark: %w", err)
		}
		f(k, p, mark.Margin)
	})
	return fault
}

// texts puts what a loss over vectors reads into a microbatch, of a step with the batches.
func (a *answers) texts(mb *family.Microbatch, b *dataset.Batch, batches []dataset.Batch) error {
	n, err := a.queries(batches)
	if err != nil {
		return err
	}
	out := family.NewAnswers(len(b.Tokens))
	if err := a.roles(b, func(k int, p place, role float32) {
		for row := p.start; row < p.end; row++ {
			out.Seq[row], out.Weight[row] = int32(k), float32(1/n)
			out.More[row*objective.Columns+objective.Margin] = role
		}
	}); err != nil {
		return err
	}
	mb.More = map[string]any{family.AnswersKey: out}
	return nil
}
