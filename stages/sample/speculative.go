package sample

import (
	"cmp"
	"fmt"
	"slices"
)

// aheadUsual is how many tokens a draft model proposes at once.
const aheadUsual = 4

// proposer says what running sequences will likely draw next.
type proposer interface {
	// propose sets drafts of running sequences.
	propose(e *Engine) error
	// forget gives back what it has of a sequence; flush forgets what pages hold.
	forget(s *sequence)
	flush()
	close()
}

// speculator draws with a draft model what an engine's model will likely draw next (arXiv:2211.17192).
// A token is accepted where the engine's model draws the same by the random number of its place: so answers are those
// without drafts, token by token and to the bit, greedy or not. The draft model draws by the same numbers.
// In the words of the field: speculative decoding.
type speculator struct {
	engine  *Engine // of the draft model; its sequences are driven here
	ahead   int
	most    int // of a sequence in this step
	shadows map[*sequence]*sequence
}

func newSpeculator(e *Engine) (*speculator, error) {
	g, o := e.o.Draft, e.o
	if a, b := g.m.Spec.Vocab, e.g.m.Spec.Vocab; a != b {
		return nil, fmt.Errorf("sample: the draft model has %d tokens and the model %d", a, b)
	}
	x := &speculator{ahead: cmp.Or(o.Ahead, aheadUsual), shadows: map[*sequence]*sequence{}}
	o.Draft, o.Ahead = nil, 0
	var err error
	x.engine, err = NewEngine(g, o)
	return x, err
}

// propose has the draft model say what running sequences may draw next.
func (e *Engine) propose() error {
	if e.ahead == nil {
		return nil
	}
	return e.ahead.propose(e)
}

func (x *speculator) propose(e *Engine) error {
	d := x.engine
	d.running, d.waiting = nil, nil
	x.most = min(x.ahead, e.o.Rows/max(1, len(e.running))-1) // all running sequences have room in a step
	of := map[*sequence]*sequence{}
	for s := range x.shadows { // in no order: each gives up pages of its own
		if !slices.Contains(e.running, s) {
			x.forget(s)
		}
	}
	for _, s := range e.running {
		if len(s.tokens)-s.done > 1 { // the model itself is not there yet
			continue
		}
		if s.drafts = nil; x.room(e, s) > 0 {
			shadow := x.follow(s)
			of[shadow] = s
			d.running = append(d.running, shadow)
		}
	}
	for range x.most {
		b := d.gather()
		if len(b.parts) == 0 {
			break
		}
		logits, err := d.compute(b)
		if err != nil {
			return fmt.Errorf("draft model: %w", err)
		}
		x.extend(e, b, logits, of)
	}
	return nil
}

// room is how many drafts a sequence may have: one token is drawn behind them all.
func (x *speculator) room(e *Engine, s *sequence) int {
	return roomFor(e, s, x.most)
}

// roomFor is how many of most drafts a sequence may have.
func roomFor(e *Engine, s *sequence, most int) int {
	return min(most, s.Max-s.drawn-1, e.o.Context-len(s.tokens)-1)
}

// follow is what the draft model has of a sequence, with the sequence's tokens.
func (x *speculator) follow(s *sequence) *sequence {
	shadow := x.shadows[s]
	if shadow == nil {
		shadow = &sequence{Request: s.Request, fixed: len(s.Prompt), scored: len(s.Prompt)}
		x.shadows[s] = shadow
	}
	same := 0
	for same < min(len(shadow.tokens), len(s.tokens)-1) && shadow.tokens[same] == s.tokens[same] {
		same++
	}
	shadow.tokens, shadow.guide = append(shadow.tokens[:same], s.tokens[same:]...), s.guide
	if shadow.done = min(shadow.done, same); len(shadow.pages) == 0 {
		x.engine.find(shadow)
	}
	return shadow
}

// extend draws a token for each sequence that the draft model has computed to its end.
func (x *speculator) extend(e *Engine, b *batch, logits []float32, of map[*sequence]*sequence) {
	d, v, row := x.engine, x.engine.g.m.Spec.Vocab, 0
	var going []*sequence
	for _, p := range b.parts {
		shadow, s := p.seq, of[p.seq]
		shadow.done = p.to
		d.name(shadow)
		if p.heads() == 0 {
			going = append(going, shadow)
			continue
		}
		z := slices.Clone(logits[row*v : (row+1)*v])
		row++
		if !e.draft(s, &shadow.guide, z, d.g.m.Spec.LogitCap) {
			continue
		}
		n := len(s.drafts)
		shadow.tokens = append(shadow.tokens, s.drafts[n-1])
		if n < x.room(e, s) {
			going = append(going, shadow)
		}
	}
	d.running = going
}

// draft adds a token to a sequence's drafts, drawn from logits by the number of its place; false if there
// is none behind which more may come.
func (e *Engine) draft(s *sequence, guide *Guide, z []float32, most float64) bool {
	capRow(z, most)
	if slices.ContainsFunc(z, noNumber) { // nothing is proposed: the model itself goes on
		return false
	}
	id, ok := e.draw[0].guided(z, &s.Params, &s.seen, *guide, Uniform(s.Seed, s.Sample, s.drawn+len(s.drafts)))
	if !ok || slices.Contains(s.Stop, id) {
		return false
	}
	if *guide != nil {
		if *guide = (*guide).After(id); *guide == nil {
			return false
		}
	}
	s.drafts = append(s.drafts, id)
	return true
}

func (x *speculator) flush() { x.engine.Flush() }
func (x *speculator) close() { x.engine.Close() }

// forget gives back what the draft model has of a sequence.
func (x *speculator) forget(s *sequence) {
	if shadow := x.shadows[s]; shadow != nil {
		x.engine.drop(shadow)
		delete(x.shadows, s)
	}
}
