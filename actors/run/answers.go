package run

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lfactor/lfactor/actors/run/rollout"
	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/objective"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/stages/family"
	"github.com/lfactor/lfactor/stages/fit"
	"github.com/lfactor/lfactor/stages/sample"
	"github.com/lfactor/lfactor/stages/trained"
	"github.com/lfactor/lfactor/topology/machine"
)

// answers makes what a loss over answers reads of batches of pairs.
type answers struct {
	loss *objective.Loss
	ref  *trained.Reference // nil where the loss has none
}

// openAnswers readies a run's loss over answers, or refuses data that has none. It is nil for others.
func (d *data) openAnswers() error {
	cfg := d.r.cfg
	l := fit.Loss(cfg)
	if err := setup.Aimed(cfg, d.kind); err != nil {
		return err
	}
	switch {
	case l == nil:
		return nil
	case d.r.tok == nil:
		return cfg.Fault("data.tokenizer", "answers are texts, and no tokenizer is given", "give one")
	case l.Policy != nil:
		return d.openRollouts(l)
	}
	if l.Logits != nil {
		return d.openTeacher()
	}
	d.answers = &answers{loss: l}
	if !l.Reference {
		return nil
	}
	var err error
	d.answers.ref, err = d.r.reference()
	return err
}

// pairEncoder is the encoder of pairs. A tokenizer without a chat template serves for pairs of texts.
func (d *data) pairEncoder(eos int32) (dataset.SampleEncoder, error) {
	l := fit.Loss(d.r.cfg)
	if l.Vectors != nil {
		return &format.SimilarEncoder{Text: d.r.encoder(), SeqLen: d.r.cfg.Run.Data.SeqLen}, nil
	}
	e := &format.PairEncoder{Text: d.r.encoder(), EOS: eos, SeqLen: d.r.cfg.Run.Data.SeqLen, Prompt: l.Prompts}
	if id, ok := d.r.tok.TokenID(d.r.conf.EOS); ok { // of a turn too
		e.EOS = id
	}
	if d.r.conf.ChatTemplate == "" && d.r.cfg.Run.Data.Template == "" {
		return d.single(e), nil
	}
	chat, err := d.chat()
	e.Chat = chat
	return d.single(e), err
}

// single makes an encoder of pairs one of single answers where the loss learns from those.
func (d *data) single(e *format.PairEncoder) dataset.SampleEncoder {
	if fit.Loss(d.r.cfg).Judged {
		return &format.JudgedEncoder{PairEncoder: *e}
	}
	return e
}

// reference is the frozen policy of a run: what objective.reference names, else the weights that the run
// began with, of which adapters are no part.
func (r *Run) reference() (*trained.Reference, error) {
	c := &r.cfg.Run
	ref := &trained.Reference{}
	model, err := family.Build(r.cfg.Model, c.Data.SeqLen)
	if err != nil {
		return nil, err
	}
	model.DropMTP()
	fill := r.start.base
	weights := ""
	if dir := weightsDir(c); dir != "" && hasWeights(dir) {
		if weights, err = trained.FolderPrint(dir); err != nil {
			return nil, err
		}
	}
	order := []int{c.Plan.TP, c.Plan.ETP} // of sums
	ref.Print = format.HashOf(r.start.began, weights, c.Train.Seed, c.Train.Precision, modelKeys(r.cfg), order,
		c.LoRA.Base)
	switch own := c.Checkpoint.Load; {
	case c.Objective.Reference != "":
		t, err := trained.Open(c.Objective.Reference, tokenizerDir(r.cfg))
		if err != nil {
			return nil, r.cfg.Fault("objective.reference", err.Error(), "")
		}
		if t.Model.Spec.Vocab != model.Spec.Vocab {
			return nil, r.cfg.Fault("objective.reference", fmt.Sprintf("it has a vocabulary of %d, the model %d",
				t.Model.Spec.Vocab, model.Spec.Vocab), "name a model with the same tokenizer")
		}
		r.start.closers = append(r.start.closers, func() error { t.Close(); return nil })
		print, err := t.Print()
		if err != nil {
			return nil, err
		}
		ref.Print = format.HashOf(print, c.Train.Precision, order)
		ref.Open = func() (*sample.Generator, error) {
			return r.frozen(nil, func(b kernels.Backend, d tensor.DType) (*sample.Generator, error) {
				return t.Generator(b, d)
			})
		}
		return ref, r.keepReference(ref)
	case own != "" && own != c.Checkpoint.Dir && !machine.Exists(filepath.Join(own, "config.json")):
		saved, _, err := checkpoint.Recover(own)
		if err != nil {
			return nil, err
		}
		r.start.closers = append(r.start.closers, saved.Close)
		fill = family.FromCheckpoint(saved, false)
		ref.Print = format.HashOf(ref.Print, saved.Path(), saved.Step())
	}
	packed, err := rollout.PackedIn(r.cfg, model)
	if err != nil {
		return nil, err
	}
	ref.Open = func() (*sample.Generator, error) {
		return r.frozen(packed, func(b kernels.Backend, d tensor.DType) (*sample.Generator, error) {
			return sample.New(model, nil, d, b, tensor.NewPool("reference", 0),
				func(p *grad.Param, _ family.Region, dst []float32) error {
					v, err := rollout.NumbersOf(p, packed, fill)
					copy(dst, v)
					return err
				})
		})
	}
	return ref, r.keepReference(ref)
}

// modelKeys are the settings of a run's model, in order.
func modelKeys(c *configs.Config) (out []string) {
	for k, v := range c.Flat() {
		if strings.HasPrefix(k, "model.overrides.") {
			out = append(out, k+"="+v)
		}
	}
	slices.Sort(out)
	return out
}

// tokenizerDir is where a run's tokenizer lies.
func tokenizerDir(c *configs.Config) string {
	if c.Run.Data.Tokenizer != "" {
		return c.Run.Data.Tokenizer
	}
	return c.Run.Model.Path
}

// frozen opens a generator on a device of its own, in the precision of training and with the order of its sums.
func (r *Run) frozen(packed map[string]kernels.Packing, open func(kernels.Backend,
	tensor.DType) (*sample.Generator, error)) (*sample.Generator, error) {
	b, err := kernels.Open(r.cfg.Run.Device, kernels.Options{Strict: r.cfg.Run.Strict})
	if err != nil {
		return nil, err
	}
	g, err := open(b, fit.Precisions[r.cfg.Run.Train.Precision])
	if err == nil {
		rollout.SumsAs(r.cfg, g, packed)
	}
	return g, err
}

// keepReference opens the directory of objective.cache.
func (r *Run) keepReference(ref *trained.Reference) error {
	dir := r.cfg.Run.Objective.Cache
	switch dir {
	case "off":
		return nil
	case "":
		dir = filepath.Join(r.cfg.Run.Log.Dir, "reference")
	}
	kept, err := trained.OpenFolder(dir)
	if err != nil {
		return r.cfg.Fault("objective.cache", err.Error(), "name a directory that this user may write to, or off")
	}
	ref.Kept = kept
	return nil
}

// counts are what the losses of a step are means over.
type counts struct{ pairs, text float64 }

// count adds up the pairs of a step, and the tokens whose loss of a language model may be added.
func (a *answers) count(batches []dataset.Batch) (n counts) {
	for i := range batches {
		b := &batches[i]
		a.each(b, func(k int, p place) {
			if k%2 == 1 {
				n.pairs++
				return
			}
			for row := p.start; row < p.end-1; row++ {
				if b.Labels[row] != dataset.IgnoreLabel {
					n.text++
				}
			}
		})
	}
	return n
}

// place is where a sequence lies in a batch: its tokens, and the first of its answer.
type place struct {
	start, end, answer int
	mark               []byte
}

// each calls f for the sequences of a batch that have an answer, in order: chosen and rejected in turn.
func (a *answers) each(b *dataset.Batch, f func(k int, p place)) {
	k := 0
	for i := range b.Media {
		m := &b.Media[i]
		if m.Kind != dataset.Answer {
			continue
		}
		s, _ := slices.BinarySearch(b.CuSeqlens, m.Spans[0].From+1)
		f(k, place{start: int(b.CuSeqlens[s-1]), end: int(b.CuSeqlens[s]), answer: int(m.Spans[0].From), mark: m.Bytes})
		k++
	}
}

// fill puts what the loss reads into a microbatch of a step with the batches.
func (a *answers) fill(mb *family.Microbatch, b *dataset.Batch, batches []dataset.Batch) error {
	if a.loss.Vectors != nil {
		return a.texts(mb, b, batches)
	}
	n := a.count(batches)
	out := family.NewAnswers(len(b.Tokens))
	var sequences [][]int32
	var starts []int
	var fault error
	a.each(b, func(k int, p place) {
		var mark format.AnswerMark
		if err := json.Unmarshal(p.mark, &mark); err != nil {
			fault = fmt.Errorf("an answer's mark: %w", err)
		}
		for row := p.start; row < p.end; row++ {
			out.Seq[row] = int32(k)
			more := out.More[row*objective.Columns:]
			more[objective.Margin] = mark.Margin
			labelled := row+1 < p.end && b.Labels[row] != dataset.IgnoreLabel
			scored := labelled && row+1 >= p.answer
			if labelled && k%2 == 0 && (scored || a.loss.Prompts) {
				more[objective.Language] = float32(1 / n.text)
			}
			if a.loss.Score {
				scored = row+1 == p.end
			}
			if scored {
				out.Weight[row] = float32(1 / n.pairs)
			}
		}
		sequences, starts = append(sequences, b.Tokens[p.start:p.end]), append(starts, p.start)
	})
	if fault != nil {
		return fault
	}
	if a.ref != nil {
		all, err := a.ref.LogProbs(sequences)
		if err != nil {
			return err
		}
		for k, v := range all {
			for i, x := range v {
				out.More[(starts[k]+i)*objective.Columns+objective.Reference] = x
			}
		}
	}
	mb.More = family.AnswersKey.With(mb.More, out)
	return nil
}

// openTeacher readies the model whose logits a run learns.
func (d *data) openTeacher() error {
	ref, err := d.r.reference()
	if err != nil {
		return err
	}
	d.teacher, err = ref.Open()
	return err
}

// teach puts a teacher's logits of its rows into a microbatch. The caller holds the lock of reading.
func teach(g *sample.Generator, mb *family.Microbatch) error {
	z, err := g.AllLogits(mb.IDs, mb.Positions, mb.Cu)
	if err != nil {
		return err
	}
	mb.More = family.TeacherKey.With(mb.More, z)
	return nil
}

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
	mb.More = family.AnswersKey.With(mb.More, out)
	return nil
}
