package sample

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lfactor/lfactor/kernels"
	"github.com/lfactor/lfactor/kernels/grad"
	"github.com/lfactor/lfactor/kernels/tensor"
	"github.com/lfactor/lfactor/stages/family"
)

// EngineOptions bound an engine.
// In the words of the field: chunked prefill.
type EngineOptions struct {
	Pages   int // of PageRows tokens each, for all sequences together; 0 takes 1024
	Rows    int // tokens of a step, of prompts and of answers; 0 takes 256
	Running int // sequences at once; 0 takes 64
	Context int // tokens of a sequence with its answer; 0 takes what the pages hold
	// Draft is a model of the same vocabulary that proposes Ahead tokens of each answer, which the engine's model then
	// computes at once; nil for none. It is the engine's from then on. Answers do not depend on it.
	Draft *Generator
	// Further has the model's own layer for further tokens propose them, in place of Draft.
	Further bool
	// Lookup has what stood behind the last tokens before propose them, in place of both.
	Lookup bool
	Ahead  int // 0 takes 4
	// Lean keeps no weights a second time, as products of few rows want them.
	Lean bool
}

// Request is a text to go on with. Its fields are not changed once it is submitted.
type Request struct {
	Prompt []int32
	Params
	// Sample tells answers to one prompt with one seed apart.
	Sample int
	// Began is how many tokens at the prompt's end are the answer's, which was drawn so far before: those
	// that follow are drawn by the numbers of their places, and Max counts them too.
	Began int
	// Top asks for so many of the likeliest tokens beside each that is drawn.
	Top int
	// Images have their places in the prompt, whose tokens there are what they are whatever stands in them;
	// nil for none. Such a prompt is computed at once, and shares no pages.
	Images *family.Images
	// Adapter is the slot of the adapter that draws, counted from 1, where the model has slots; 0 is the model alone.
	Adapter int
	// Guide says which tokens may come first, nil for any; what it leads to says it of those behind.
	Guide Guide
	// Scored takes each token of the prompt behind the first, with its log-probability behind those before it,
	// and Further of the likeliest there; nil where nobody asks. Such a prompt is computed whole.
	Scored  func(t Token)
	Further int
	// Salt tells apart prompts that share no pages though they begin alike.
	Salt string
	// Share is for whom it is computed: while requests of several wait, each is let in by how few tokens have been
	// computed for it.
	Share string
	// Emit takes each token as it is drawn, also one of Stop, which ends the answer; it returns false to
	// end the answer itself. It is called by whoever calls Step.
	Emit func(t Token) bool
	// Begun is told when the request is computed, again behind a preemption; nil for nobody.
	Begun func()
	// Done is told once why the answer ended.
	Done func(End)
}

// Token is a drawn token with its log-probability under the model as training computes it: before penalties,
// temperature and filters.
type Token struct {
	ID      int32
	LogProb float32
	Top     []Candidate
	Stop    bool // it is one of Params.Stop
	Rank    int  // among all, from 1, where it is of a prompt that is scored; 0 else
}

// Candidate is a token that might have been drawn.
type Candidate struct {
	ID      int32
	LogProb float32
}

// End says why an answer ended.
type End string

// Guide is which tokens may come next in an answer that is to have a form. It is not changed by what is drawn.
type Guide interface {
	// Allowed has a bit for each token's number; those beyond it may not come. It is not to be changed.
	Allowed() []uint64
	// Ends reports whether the answer may end: then tokens of Stop may come, and else not.
	Ends() bool
	// After is the guide behind a token that was allowed, nil where the answer is complete.
	After(id int32) Guide
}

// The ends of answers.
const (
	EndStop   End = "stop"   // a stop token, or Emit returned false
	EndLength End = "length" // Params.Max tokens, or the context is full
	EndCancel End = "cancel"
	EndStuck  End = "stuck" // the vocabulary has no token that the guide allows
	EndError  End = "error" // Step returned an error
	// EndNumber is of an answer whose next token has no probability: a logit is not a number, or the
	// largest is not finite. Other answers go on.
	EndNumber End = "no number"
)

// sequence is a request under way.
type sequence struct {
	*Request
	tokens []int32 // prompt and answer
	done   int     // tokens whose keys and values lie in pages
	pages  []int
	key    string // of the last full page that is named
	named  int    // full pages that are named
	drawn  int
	seen   counts
	guide  Guide
	scored int     // tokens of the prompt that have a log-probability
	drafts []int32 // that may follow tokens
	places []int32 // of the prompt's tokens on three axes, where images have their places among them
	after  int32   // the place of the token behind the prompt
	hidden *states // of the last tokens that were computed; nil where nothing reads them
	fixed  int     // of a sequence whose tokens may be taken back: how many may not, 0 for all
	ended  bool
}

// toScore is how many tokens of the prompt are still to be scored.
func (s *sequence) toScore() int {
	if s.Scored == nil {
		return 0
	}
	return len(s.Prompt) - 1 - s.scored
}

// at is a token, also of those that may follow.
func (s *sequence) at(i int) int32 {
	if i < len(s.tokens) {
		return s.tokens[i]
	}
	return s.drafts[i-len(s.tokens)]
}

// Engine draws tokens for many requests at once, over a pool of pages: it takes new tokens of all running sequences,
// and pieces of prompts, as rows of one microbatch (continuous batching). What prompts have in common is computed once.
// No request's tokens, nor a bit of their log-probabilities, depend on others. It is for one goroutine.
type Engine struct {
	g       *Generator // nil of an engine without a model
	o       EngineOptions
	vocab   int
	edge    int // tokens of a sequence, of which positions change behind; 0 for none
	work    computer
	load    Load
	pool    map[string]*tensor.Tensor
	pages   *pages
	running []*sequence
	waiting []*sequence
	shares  shares
	traces  map[shape]*grad.Trace
	draw    []drawer // of each thread
	ahead   proposer // nil where nothing is proposed
	changes []uint64 // of each slot's adapter
	stats   Stats
}

// Stats are what an engine has done and holds.
type Stats struct {
	Running, Waiting int
	WaitingTokens    int // of those that wait, prompts and what was drawn
	PagesUsed, Pages int
	Prompt, Drawn    int64 // tokens
	Shared           int64 // prompt tokens that were found in pages
	Steps, Preempted int64
	Drafted          int64 // tokens that a draft model proposed and the model computed
	Accepted         int64 // of these, those that the model drew itself
	Traces           int
}

// NewEngine makes an engine on a generator, which is the engine's from then on. The device's memory must be the host's.
func NewEngine(g *Generator, o EngineOptions) (*Engine, error) {
	if err := drawsText(g); err != nil {
		return nil, err
	}
	if k, ok := g.run.Backend.(kernels.Keeper); ok &&
		!o.Lean { // a step's few rows do not pay for packing weights
		for _, t := range g.run.Params { // in no order: all are kept
			if len(t.Shape) == 2 {
				k.Keep(t)
			}
		}
	}
	e := newEngine(g, o, g.m.Spec.Vocab, g.m.Spec.Rope.Edge())
	e.work = e
	var err error
	switch {
	case e.g.m.Vision != nil && (o.Draft != nil || o.Further || o.Lookup):
		err = errors.New("sample: a model that sees takes no drafts")
	case o.Draft != nil:
		e.ahead, err = newSpeculator(e)
	case o.Further:
		e.ahead, err = newMTPProposer(e)
	case o.Lookup:
		e.ahead = &ngramProposer{o.Ahead}
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

// newEngine is one that nothing computes for yet.
func newEngine(g *Generator, o EngineOptions, vocab, edge int) *Engine {
	o.Pages, o.Rows, o.Running = cmp.Or(o.Pages, 1024), cmp.Or(o.Rows, 256), cmp.Or(o.Running, 64)
	o.Context = min(cmp.Or(o.Context, o.Pages*PageRows), o.Pages*PageRows)
	if edge > 0 { // texts of a batch share one table, which is that of shorter ones
		o.Context = min(o.Context, edge)
	}
	e := &Engine{g: g, o: o, vocab: vocab, edge: edge, pages: newPages(o.Pages), shares: shares{},
		traces: map[shape]*grad.Trace{}, draw: make([]drawer, 1), pool: map[string]*tensor.Tensor{}}
	e.changes = make([]uint64, e.slots())
	return e
}

// drawsText refuses models that an engine cannot draw with.
func drawsText(g *Generator) error {
	switch _, device := g.run.Backend.(kernels.Device); {
	case device:
		return errors.New("sample: an engine runs on the processor: set device: cpu")
	case !g.m.Task().Writes:
		return fmt.Errorf("sample: %s is no model of text", g.m.Family)
	case g.m.Headless():
		return errors.New("sample: the model gives scores or vectors of texts and draws no tokens")
	}
	return nil
}

// Context is the most tokens of a sequence with its answer.
func (e *Engine) Context() int { return e.o.Context }

// Submit queues a request, or says what is wrong with it.
func (e *Engine) Submit(r *Request) error {
	if err := r.Check(); err != nil {
		return err
	}
	switch n := len(r.Prompt); {
	case r.Adapter < 0 || r.Adapter > e.slots():
		return fmt.Errorf("there is no adapter in slot %d of %d", r.Adapter, e.slots())
	case n == 0:
		return errors.New("the prompt has no tokens")
	case r.Began > 0 && r.Guide != nil:
		return errors.New("an answer that was begun before has no guide")
	case r.Began < 0 || r.Began >= n:
		return fmt.Errorf("the prompt has %d tokens, of which %d are the answer's", n, r.Began)
	case n >= e.o.Context:
		why := ""
		if e.o.Context == e.edge {
			why = ", where the positions of " + e.g.m.Spec.Rope.Type + " change: `lfactor sample` goes on"
		}
		return fmt.Errorf("the prompt has %d tokens, and with its answer a text has at most %d%s", n, e.o.Context, why)
	}
	for i, id := range r.Prompt {
		if id < 0 || int(id) >= e.vocab {
			return fmt.Errorf("token %d of the prompt is id %d, and the model has the ids 0 to %d", i, id, e.vocab-1)
		}
	}
	if id := r.outside(e.vocab); id != -1 {
		return fmt.Errorf("id %d, which the request names, is of no token: the model has the ids 0 to %d", id, e.vocab-1)
	}
	s := &sequence{Request: r, tokens: slices.Clone(r.Prompt), guide: r.Guide, key: e.root(r)}
	if r.Images != nil {
		if err := e.look(s); err != nil {
			return err
		}
	}
	s.seen.see(r.Prompt[:len(r.Prompt)-r.Began], true)
	s.seen.see(r.Prompt[len(r.Prompt)-r.Began:], false)
	if s.drawn = r.Began; r.Max <= r.Began {
		r.Done(EndLength)
		return nil
	}
	e.shares.enter(r.Share, e.running, e.waiting)
	e.waiting = append(e.waiting, s)
	return nil
}

// Cancel ends a request, if it has not ended.
func (e *Engine) Cancel(r *Request) {
	for _, l := range [][]*sequence{e.running, e.waiting} {
		for _, s := range l {
			if s.Request == r && !s.ended {
				e.end(s, EndCancel)
			}
		}
	}
	e.sweep()
}

// end gives a sequence's pages back and says why it ended.
func (e *Engine) end(s *sequence, why End) {
	s.ended = true
	e.drop(s)
	if e.ahead != nil {
		e.ahead.forget(s)
	}
	s.Done(why)
}

// drop gives a sequence's pages back, the last first, so that beginnings stay longest.
func (e *Engine) drop(s *sequence) {
	for i := len(s.pages) - 1; i >= 0; i-- {
		e.pages.give(s.pages[i])
	}
	s.pages, s.done, s.key, s.named, s.hidden = nil, 0, e.root(s.Request), 0, nil
}

// slots is the number of adapters that lie side by side.
func (e *Engine) slots() int {
	if e.g == nil || e.g.lora == nil {
		return 0
	}
	return e.g.lora.Slots
}

// root is the key of no token: what an adapter's pages hold is of that adapter, as it is now.
func (e *Engine) root(r *Request) string {
	if r.Adapter == 0 || e.slots() == 0 {
		return r.Salt
	}
	return fmt.Sprintf("adapter %d %d %s", r.Adapter, e.changes[r.Adapter-1], r.Salt)
}

// Changed says that the adapter of a slot, counted from 1, is another one: pages hold nothing of it any
// more. No request of it may be under way.
func (e *Engine) Changed(slot int) { e.changes[slot-1]++ }

// sweep removes sequences that have ended.
func (e *Engine) sweep() {
	gone := func(s *sequence) bool { return s.ended }
	e.running, e.waiting = slices.DeleteFunc(e.running, gone), slices.DeleteFunc(e.waiting, gone)
}

// Busy reports whether some request has not ended.
func (e *Engine) Busy() bool { return len(e.running)+len(e.waiting) > 0 }

// Stats says what the engine has done and holds.
func (e *Engine) Stats() Stats {
	s := e.stats
	s.Running, s.Waiting, s.PagesUsed, s.Pages, s.Traces = len(e.running), len(e.waiting), e.pages.used(),
		len(e.pages.refs), len(e.traces)
	for _, w := range e.waiting {
		s.WaitingTokens += len(w.tokens)
	}
	return s
}

// Flush forgets what pages hold of ended sequences. Weights may change only while no request is under way,
// and with a Flush behind it.
func (e *Engine) Flush() {
	e.pages.flush()
	if e.ahead != nil {
		e.ahead.flush()
	}
}

// Generator is the engine's, for weights and log-probabilities between requests.
func (e *Engine) Generator() *Generator { return e.g }

// Close ends all requests and gives the memory back.
func (e *Engine) Close() {
	for _, s := range append(slices.Clone(e.running), e.waiting...) {
		e.end(s, EndCancel)
	}
	e.sweep()
	for _, t := range e.pool {
		t.Release()
	}
	clear(e.pool)
	if e.ahead != nil {
		e.ahead.close()
	}
	if e.g != nil {
		e.g.Close()
	}
}

// Step computes one microbatch and draws a token for each sequence whose tokens are all computed. After an
// error all requests have ended.
func (e *Engine) Step() error {
	e.admit()
	err := e.propose()
	b := e.gather()
	e.load = b.load()
	if len(b.parts) == 0 && err == nil {
		return nil
	}
	if err == nil {
		err = e.work.microbatch(b)
	}
	if err != nil {
		for _, s := range append(slices.Clone(e.running), e.waiting...) {
			if !s.ended {
				e.end(s, EndError)
			}
		}
	}
	e.sweep()
	e.stats.Steps++
	return err
}

// admit lets waiting sequences run while there is room for them. One whose beginning another is computing
// waits for it, to share its pages.
func (e *Engine) admit() {
	var left []*sequence
	e.waiting = e.shares.order(e.waiting)
	for i, s := range e.waiting {
		if len(e.running) >= e.o.Running || len(e.pages.free) == 0 {
			left = append(left, e.waiting[i:]...)
			break
		}
		if shares := s.Images == nil && s.toScore() == 0; shares && e.begun(s) {
			left = append(left, s)
			continue
		} else if shares {
			e.find(s)
		}
		if e.running = append(e.running, s); s.Begun != nil {
			s.Begun()
		}
	}
	e.waiting = left
}

// begun reports whether a running sequence computes the page that s needs first.
func (e *Engine) begun(s *sequence) bool {
	if len(s.tokens) <= PageRows {
		return false
	}
	key, have := e.root(s.Request), 0
	for (have+1)*PageRows < len(s.tokens) {
		next := chain(key, s.tokens[have*PageRows:(have+1)*PageRows])
		if _, known := e.pages.at[next]; !known {
			break
		}
		key, have = next, have+1
	}
	end := (have + 1) * PageRows
	return end < len(s.tokens) && slices.ContainsFunc(e.running, func(r *sequence) bool {
		return r.Images == nil && r.Adapter == s.Adapter && r.Salt == s.Salt && r.done < end && len(r.tokens) >= end && slices.Equal(r.tokens[:end],
			s.tokens[:end])
	})
}

// find takes the pages that hold the beginning of a sequence; at least its last token is computed.
func (e *Engine) find(s *sequence) {
	for (s.named+1)*PageRows < len(s.tokens) {
		next := chain(s.key, s.tokens[s.named*PageRows:(s.named+1)*PageRows])
		i := e.pages.share(next)
		if i < 0 {
			break
		}
		s.pages, s.key, s.named = append(s.pages, i), next, s.named+1
	}
	s.done = s.named * PageRows
	e.stats.Shared += int64(s.done)
}

// room makes sure that a sequence has pages for n tokens, and returns for how many it has. A sequence that
// began later gives its own up, and computes its tokens again when there is room.
func (e *Engine) room(s *sequence, n int) int {
	for len(s.pages)*PageRows < n {
		i := e.pages.take()
		if i < 0 && !e.preempt(s) {
			break
		}
		if i >= 0 {
			s.pages = append(s.pages, i)
		}
	}
	return min(n, len(s.pages)*PageRows)
}

// preempt puts the youngest running sequence that is younger than s back into the queue.
func (e *Engine) preempt(s *sequence) bool {
	last := e.running[len(e.running)-1]
	if last == s {
		return false
	}
	e.drop(last)
	last.drafts = nil
	e.running = e.running[:len(e.running)-1]
	e.waiting = append([]*sequence{last}, e.waiting...)
	e.stats.Preempted++
	return true
}
