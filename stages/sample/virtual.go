package sample

import "errors"

// computer computes a microbatch and gives its sequences what they draw.
type computer interface{ microbatch(b *batch) error }

// Load is what a step computes: rows, all keys that they see, the rows that tokens are drawn from, and sequences.
// A trace is recorded for the class of a load (Class), and its time follows from that.
type Load struct{ Rows, Keys, Heads, Sequences int }

// Class is the load that an engine computes in place of one.
func (l Load) Class() Load {
	return Load{sized(l.Rows), sized((l.Keys+63)/64) * 64, sized(l.Heads), l.Sequences}
}

func (b *batch) load() Load { return Load{b.rows, b.keys, b.heads, len(b.parts)} }

// Load is that of the last step; one of no rows has computed nothing.
func (e *Engine) Load() Load { return e.load }

// NewVirtual makes an engine that has no model: it lets in, batches, takes turns, shares and gives up pages as any
// does, and draws token 0 for each until an answer has Params.Max of them. Fails says which steps, counted from 0, end
// with an error; nil for none.
func NewVirtual(o EngineOptions, vocab int, fails func(step int64) bool) *Engine {
	e := newEngine(nil, o, vocab, 0)
	e.work = virtual{e, fails}
	return e
}

// virtual is a computer that computes nothing.
type virtual struct {
	*Engine
	fails func(step int64) bool
}

func (v virtual) microbatch(b *batch) error {
	if v.fails != nil && v.fails(v.stats.Steps) {
		return errors.New("sample: the step fails")
	}
	v.computed(b)
	for _, p := range b.parts {
		if p.draws() > 0 && !p.seq.ended {
			v.take(p.seq, Token{}, nil)
		}
	}
	for _, p := range b.parts {
		v.settle(p)
	}
	return nil
}
