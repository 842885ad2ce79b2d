package sample

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/block"
	"github.com/lfactor/lfactor/stages/family"
)

// mtpProposer proposes by the model's own layer for further tokens (arXiv:2412.19437 §2.2): it reads the hidden
// states that the model has computed, each with the token behind it, has keys and values of its own in the
// same pages, and goes on from its own hidden states. Tokens count as those of a draft model do.
type mtpProposer struct {
	ahead  int
	traces map[shape]*grad.Trace
}

// states are rows of hidden states, the first of a sequence's token from.
type states struct {
	from int
	rows []byte
}

func newMTPProposer(e *Engine) (*mtpProposer, error) {
	switch {
	case e.g.m.Spec.MTP == 0:
		return nil, errors.New("sample: the model has no layer for further tokens")
	case e.slots() > 0:
		return nil, errors.New("sample: adapters have no layer for further tokens")
	}
	return &mtpProposer{cmp.Or(e.o.Ahead, aheadUsual), map[shape]*grad.Trace{}}, nil
}

func (x *mtpProposer) forget(*sequence) {}
func (x *mtpProposer) flush()           {}
func (x *mtpProposer) close()           {}

// propose computes what the layer makes of new hidden states, and drafts behind those of the last tokens.
func (x *mtpProposer) propose(e *Engine) error {
	most := min(x.ahead, e.o.Rows/max(1, len(e.running))-1) // all running sequences have room in a step
	b, guides := &batch{behind: 1}, map[*sequence]Guide{}
	for _, s := range e.running {
		h := s.hidden
		if h == nil || h.from >= s.done {
			continue
		}
		p := part{s, h.from, s.done, s.done + 1} // of no row logits are wanted
		if s.drafts = nil; len(s.tokens)-s.done == 1 && roomFor(e, s, most) > 0 {
			p.sure, guides[s] = p.to, s.guide
		}
		b.parts = append(b.parts, p)
	}
	for n := 1; len(b.parts) > 0; n++ {
		final, logits, err := x.compute(e, b)
		if err != nil {
			return fmt.Errorf("layer for further tokens: %w", err)
		}
		b = x.extend(e, b, guides, final, logits, n < most)
	}
	return nil
}

// extend drafts a token for each part whose logits were wanted, and gives the rows behind them.
func (x *mtpProposer) extend(e *Engine, b *batch, guides map[*sequence]Guide, final []byte, logits []float32,
	goes bool) *batch {
	v, size := e.g.m.Spec.Vocab, len(final)/max(1, b.shape.rows)
	next := &batch{behind: 1}
	row, head := 0, 0
	for _, p := range b.parts {
		s := p.seq
		row += p.to - p.from
		s.hidden = nil
		if p.heads() == 0 {
			continue
		}
		guide := guides[s]
		z := logits[head*v : (head+1)*v]
		if head++; !e.draft(s, &guide, z, 0) || !goes || len(s.drafts) >= roomFor(e, s, x.ahead) ||
			e.stretch(s, p.to+1) <= p.to {
			continue
		}
		guides[s] = guide
		s.hidden = &states{p.to, final[(row-1)*size : row*size]}
		next.parts = append(next.parts, part{s, p.to, p.to + 1, p.to + 1})
	}
	return next
}

// compute runs the layer on the rows of a batch and gives their hidden states, and the logits of its heads.
func (x *mtpProposer) compute(e *Engine, b *batch) (final []byte, logits []float32, err error) {
	for _, p := range b.parts {
		b.rows, b.keys, b.heads = b.rows+p.to-p.from, b.keys+p.to, b.heads+p.heads()
	}
	b.shape = classOf(b)
	tr := x.traces[b.shape]
	if tr == nil {
		tr = e.g.m.RecordFurther(e.g.options(), block.Rec{Shape: block.Shape{Rows: b.shape.rows}, Lora: e.g.lora,
			Cached: true, Pool: e.o.Pages * PageRows, KeyRows: b.shape.keys, Heads: b.shape.heads})
		x.traces[b.shape] = tr
	}
	size := e.g.m.Spec.Hidden * e.g.dtype.Size()
	hidden := tensor.Make(e.g.dtype, b.shape.rows, e.g.m.Spec.Hidden)
	raw := hidden.Bytes()
	for _, p := range b.parts {
		h := p.seq.hidden
		copy(raw[:(p.to-p.from)*size], h.rows[(p.from-h.from)*size:])
		raw = raw[(p.to-p.from)*size:]
	}
	data, err := e.data(tr, b, map[string]*tensor.Tensor{family.HiddenOf: hidden})
	if err != nil {
		return nil, nil, err
	}
	out, err := e.run(tr, data)
	if err != nil {
		return nil, nil, err
	}
	logits = e.g.read(out["logits"])
	final = append(final, out["final"].Bytes()...)
	out["final"].Release()
	delete(out, "logits")
	delete(out, "final")
	e.keep(out, b)
	return final, logits, nil
}
