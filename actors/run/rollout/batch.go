package rollout

import (
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/stages/family"
)

// lay puts replica dp's answers of a round into its microbatches of a step, one behind the other.
func (r *Source) lay(step int64, dp int, x *round) ([]family.Microbatch, error) {
	c := &r.Cfg.Run
	answers, tokens := 0.0, 0.0
	for _, a := range x.answers {
		if r.learns(a) {
			answers, tokens = answers+1, tokens+float64(a.own())
		}
	}
	var out []family.Microbatch
	each := c.Train.MicroBatch
	for m := dp; m*each < len(x.answers); m += c.Plan.DP {
		mb, err := r.microbatch(step, x.answers[m*each:(m+1)*each], answers, tokens)
		if err != nil {
			return nil, err
		}
		out = append(out, mb)
	}
	return out, nil
}

// microbatch lays answers out with their prompts.
func (r *Source) microbatch(step int64, part []*Answer, answers, tokens float64) (family.Microbatch, error) {
	c := &r.Cfg.Run
	n := c.Train.MicroBatch * c.Data.SeqLen
	mb := family.Microbatch{IDs: make([]int32, n), Targets: make([]int32, n), Positions: make([]int32, n),
		Weights: make([]float32, n)}
	out := family.NewAnswers(n)
	var sequences [][]int32
	at := 0
	for k, a := range part {
		mb.Cu = append(mb.Cu, int32(at))
		text := append(append([]int32{}, a.Prompt...), a.Answer...)
		sequences = append(sequences, text)
		told, fresh := a.Told(), a.fresh(step)
		for i, id := range text {
			row := at + i
			mb.IDs[row], mb.Positions[row], mb.Targets[row], out.Seq[row] = id, int32(i), dataset.IgnoreLabel, int32(k)
			if t := i + 1 - len(a.Prompt); t >= 0 && t < len(a.Answer) && (told == nil || !told[t]) {
				mb.Targets[row] = a.Answer[t]
				more := out.More[row*objective.Columns:]
				more[objective.Old], more[objective.Advantage] = a.LogProbs[t], float32(a.Advantage)
				if fresh[t] {
					more[objective.Fresh] = 1
				}
				if len(a.Advantages) > 0 {
					more[objective.Advantage] = a.Advantages[t]
				}
				if len(a.Returns) > 0 {
					more[objective.Return], more[objective.Worth] = a.Returns[t], a.Values[t]
				}
				if r.learns(a) {
					out.Weight[row] = float32(r.loss.Policy.Share(a.own(), answers, tokens, float64(c.Rollout.Max)))
				}
			}
		}
		at += len(text)
	}
	if mb.Cu = append(mb.Cu, int32(at)); at < n {
		for row := at; row < n; row++ {
			mb.Targets[row], mb.Positions[row] = dataset.IgnoreLabel, int32(row-at)
		}
		mb.Cu = append(mb.Cu, int32(n))
	}
	if r.Draws() {
		mb.Keys = make([]int64, n)
		for row, s := range out.Seq {
			if s >= 0 {
				mb.Keys[row] = int64(dataset.Draw(uint64(c.Train.Seed), 2, part[s].Sample, step, int64(row)))
			}
		}
	}
	mb.More = family.AnswersKey.With(mb.More, out)
	if r.ref == nil {
		return mb, nil
	}
	all, err := r.ref.LogProbs(sequences)
	if err != nil {
		return mb, err
	}
	for k, v := range all {
		for i, x := range v {
			out.More[(int(mb.Cu[k])+i)*objective.Columns+objective.Reference] = x
		}
	}
	return mb, nil
}
