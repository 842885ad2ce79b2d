package dataset

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Mode is how samples are made of documents.
type Mode string

// The modes of a Loader.
const (
	// ModePretrain cuts documents into windows of SeqLen, and joins what is left of each, and documents that
	// are shorter, to further windows. A window's last token is the next one's first. All windows of a
	// source are in random order.
	ModePretrain Mode = "pretrain"
	// ModeSFT keeps documents whole and packs them into rows of SeqLen.
	ModeSFT Mode = "sft"
)

// LoaderConfig says what a Loader gives. The fields down to Seed decide the order of the data and may not
// change when a run is resumed; those below may.
type LoaderConfig struct {
	Sources  []Weighted // weights are shares of samples; with all weights 0 the sources are read as one
	Ramps    []Ramp     // of each source, how its weight changes by steps; nil where none does
	Mode     Mode
	SeqLen   int   // tokens of a row
	EOD      int32 // the id that ends a text; -1 for none
	Pad      int32 // the id that fills rows
	Special  bool  // have the tokenizer add its special tokens (BOS) to texts
	Separate bool  // documents of a window do not attend to each other, and positions start again in each
	MaskEOD  bool  // no loss where EOD is the input
	// Shuffle is how many windows are made at once and shuffled. Documents, and pieces of long ones, are in
	// random order before; where a source does not know how long its documents are, these windows alone
	// spread a long one. 0 means 64 to 1024, by their length, and for such sources 10,000, but not more than
	// 256 MiB of ids. A resumed run reads the windows under way again.
	Shuffle int
	// Sequential takes documents in the order of their sources, and neither windows nor pieces change places.
	Sequential bool
	Vocab      int     // ids of the model: a document with others is bad; 0 for no check
	Packing    Packing // of ModeSFT; "" means PackBestFit
	Window     int     // documents packed together; 0 means 256
	Own        bool    // each token is its own label: the model predicts no next one
	DropLong   bool    // leave out documents over SeqLen, instead of cutting them
	MediaMax   int     // images and videos of a row; 0 means any number
	// OrderWindow is how many documents of a source are shuffled with each other; 0 means all. A window is
	// made of orderRuns runs of documents that follow each other, from all over the source, so that reading
	// touches few places at once and yet the order is nearly as mixed as that of all.
	OrderWindow int64
	Seed        uint64

	MicroBatch  int   // rows of a microbatch
	GlobalBatch int   // rows of a step
	Passes      int64 // over each source; 0 for ever
	KeepLast    bool  // give what the last pass leaves over, filled up with padding, as for an evaluation
	Readers     int   // documents read at once; 0 means 1. The data depends on neither this nor Encoders
	Encoders    int   // documents made tokens of at once; 0 means as many as Readers
	// Prepare makes what a model takes of images and videos, before their samples are packed: a sample of
	// which it fails is bad. Decoders is how many are made at once, 0 for as many as Encoders; HoldBytes
	// bounds the memory of what was made and not taken, 0 for 256 MiB.
	Prepare    Prepare
	Decoders   int
	HoldBytes  int64
	CacheBytes int64 // for documents as ids, so that later passes need not encode again
	Chat       ChatEncoder
	Samples    SampleEncoder // of sources of samples with several files
	Budget     Budget
	Quarantine *Quarantine // nil: in memory
}

// Loader gives the microbatches of steps. The batch of a step is a function of the position alone: not of
// ranks, readers, or of where the run was interrupted. Its methods are for one goroutine.
type Loader struct {
	feed    *feeder
	order   string
	next    Position           // of the step that comes next
	starts  map[int64]Position // where recent steps began
	pending chan stepResult    // the step being prepared, if any
	// of the last steps returned: what is not taken of their media is released behind the next
	given [2][]Batch
}

// holdBytes bounds prepared media unless it is said.
const holdBytes = 256 << 20

// startsMax is how many steps back a Loader can go without a Seek.
const startsMax = 64

// stepResult is a step made ahead.
type stepResult struct {
	step       int64
	batches    []Batch
	start, end Position
	err        error
}

// OpenLoader starts at the first step. Of texts that are to be shuffled, sizes and a few documents are read,
// to decide how long ones are cut; else nothing is read before the first call of Step. The sources stay the
// caller's to close, after the Loader.
func OpenLoader(cfg LoaderConfig, enc Encoder) (*Loader, error) {
	if err := errors.Join(cfg.fill(), cfg.checkEncoders(enc)); err != nil {
		return nil, err
	}
	all, err := cfg.fillUnits(enc)
	if err != nil {
		return nil, err
	}
	feed := newFeeder(cfg, all, enc)
	l := &Loader{feed: feed, order: cfg.fingerprint(enc), starts: map[int64]Position{}}
	l.next = Position{Order: l.order, Sources: make([]SourcePosition, len(feed.cfg.Sources))}
	feed.seek(l.next)
	return l, nil
}

// fill sets defaults and checks the fields, and reports all faults.
func (c *LoaderConfig) fill() error {
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("loader: "+format, args...))
		}
	}
	set := func(field *int, otherwise int) {
		if *field == 0 {
			*field = otherwise
		}
	}
	set(&c.Window, 256)
	set(&c.Readers, 1)
	set(&c.Encoders, c.Readers)
	set(&c.Decoders, c.Encoders)
	if c.HoldBytes == 0 {
		c.HoldBytes = holdBytes
	}
	if c.Packing == "" {
		c.Packing = PackBestFit
	}
	need(c.Mode == ModePretrain || c.Mode == ModeSFT, "mode %q; it must be %q or %q", c.Mode, ModePretrain, ModeSFT)
	need(slices.Contains(Packings(), c.Packing), "packing %q; it must be one of %v", c.Packing, Packings())
	need(c.Vocab >= 0 && c.Vocab <= math.MaxInt32, "a vocabulary of %d ids", c.Vocab)
	need(c.Vocab == 0 || int(c.EOD) < c.Vocab && int(c.Pad) < c.Vocab,
		"the end of a document is id %d and padding id %d, outside of the model's %d", c.EOD, c.Pad, c.Vocab)
	need(c.SeqLen >= 1, "a sequence length of %d", c.SeqLen)
	need(c.MicroBatch >= 1 && c.GlobalBatch >= 1 && c.GlobalBatch%max(c.MicroBatch, 1) == 0,
		"a global batch of %d is not a multiple of the microbatch of %d", c.GlobalBatch, c.MicroBatch)
	need(c.Shuffle >= 0 && c.Window >= 1 && c.Readers >= 1 && c.Encoders >= 1 && c.Decoders >= 1 &&
		c.HoldBytes >= 0 && c.Passes >= 0 && c.OrderWindow >= 0 && c.MediaMax >= 0,
		"a count is negative: shuffle %d, window %d, readers %d, passes %d", c.Shuffle, c.Window, c.Readers, c.Passes)
	return errors.Join(append(errs, c.fillSources())...)
}

// fillSources makes one source of several without weights.
func (c *LoaderConfig) fillSources() error {
	var list []Source
	weighted := 0
	for _, s := range c.Sources {
		if s.Source.Len() == 0 {
			return fmt.Errorf("loader: %s has no documents", s.Source.Name())
		}
		if !(s.Weight >= 0) {
			return fmt.Errorf("loader: weight %g of %s is negative", s.Weight, s.Source.Name())
		}
		list = append(list, s.Source)
		if s.Weight > 0 || c.Ramps != nil {
			weighted++
		}
	}
	if weighted > 0 && weighted < len(list) {
		return fmt.Errorf("loader: %d of %d sources have a weight; give all of them one, or none", weighted, len(list))
	}
	if weighted == 0 {
		all, err := Concat(list...)
		if err != nil {
			return fmt.Errorf("loader: %w", err)
		}
		c.Sources = []Weighted{{all, 1}}
	}
	return nil
}

// checkEncoders says what cannot be made tokens of.
func (c *LoaderConfig) checkEncoders(enc Encoder) error {
	for _, s := range c.Sources {
		k := s.Source.Kind()
		if k == KindText && enc == nil || k == KindChat && c.Chat == nil || k.sampled() && c.Samples == nil {
			return fmt.Errorf("loader: %s holds %s and there is no encoder for it", s.Source.Name(), k)
		}
	}
	return nil
}

// shuffleBytes bounds the ids of the windows that are shuffled where documents' sizes are not known, and
// shuffleUnknown is how many windows that are otherwise. Where sizes are known, pieces of texts may still
// give two rows, which windows of shuffleTokens tokens part: at least shuffleSized, at most shuffleMost.
const (
	shuffleBytes   = 256 << 20
	shuffleUnknown = 10_000
	shuffleTokens  = 1 << 17
	shuffleSized   = 64
	shuffleMost    = 1024
)

// fillUnits finds what is permuted of each source, and decides how many windows are made at once.
func (c *LoaderConfig) fillUnits(enc Encoder) (all []*units, err error) {
	shuffle := shuffleSized
	if c.Mode == ModePretrain {
		shuffle = min(shuffleMost, max(shuffleSized, shuffleTokens/c.SeqLen))
	}
	for _, s := range c.Sources {
		u := wholeDocuments(s.Source)
		if c.Mode == ModePretrain && !c.Sequential {
			// which tokens stand at a text's end is not known before it is made tokens of as a whole
			if !c.Special {
				u, err = newUnits(s.Source, c.SeqLen, enc)
			}
			if err != nil {
				return nil, fmt.Errorf("loader: %w", err)
			}
			if u.before == nil {
				shuffle = min(shuffleUnknown, max(shuffleSized, shuffleBytes/4/(c.SeqLen+1)))
			}
		}
		all = append(all, u)
	}
	if c.Shuffle == 0 {
		c.Shuffle = shuffle
	}
	return all, nil
}

// fingerprint identifies the order of the data.
func (c *LoaderConfig) fingerprint(enc Encoder) string {
	version := "order 1"
	if c.Mode == ModePretrain {
		version = "order 2"
	}
	parts := []any{version, c.Mode, c.SeqLen, c.EOD, c.Pad, c.Special, c.Separate, c.MaskEOD, c.Shuffle,
		c.Packing, c.Window, c.DropLong, c.Seed}
	if c.OrderWindow > 0 || c.MediaMax > 0 {
		parts = append(parts, "window", c.OrderWindow, "media", c.MediaMax)
	}
	if c.Sequential {
		parts = append(parts, "sequential")
	}
	if c.Own {
		parts = append(parts, "own labels")
	}
	if c.Prepare != nil {
		parts = append(parts, "prepared 1") // samples that cannot be decoded have no place in it
	}
	for _, s := range c.Sources {
		parts = append(parts, s.Source.Fingerprint(), s.Weight)
	}
	if c.Ramps != nil {
		parts = append(parts, "ramps", c.Ramps)
	}
	if enc != nil {
		parts = append(parts, enc.Fingerprint())
	}
	if c.Chat != nil {
		parts = append(parts, c.Chat.Fingerprint())
	}
	if c.Samples != nil {
		parts = append(parts, c.Samples.Fingerprint())
	}
	return fingerprintOf(parts...)
}

// Step returns the microbatches of a step in order, all ranks' (see Share), and begins to prepare the next.
// Steps are taken one after the other; the last 64 can be taken again, as after a step that was not
// committed. For any other, Seek first.
//
// io.EOF says that the passes are over: what is left does not fill a step, or nothing is left (KeepLast). A
// *BudgetError says that too much of the data is bad. After any other error the same step can be asked for
// again.
func (l *Loader) Step(step int64) ([]Batch, error) {
	r, ok := l.prepared(step)
	if !ok {
		start, known := l.starts[step]
		if step == l.next.Step {
			start, known = l.next, true
		}
		if !known {
			return nil, fmt.Errorf("loader: step %d is asked for and step %d comes next; seek to its "+
				"position first", step, l.next.Step)
		}
		l.feed.seek(start)
		r = l.feed.step(start)
	}
	if r.err != nil {
		l.feed.seek(r.start)
		return nil, r.err
	}
	l.remember(r)
	for i := range l.given[0] {
		release(l.given[0][i].Media)
	}
	l.given[0], l.given[1] = l.given[1], r.batches
	ahead := make(chan stepResult, 1)
	l.pending = ahead
	go func(start Position) { ahead <- l.feed.step(start) }(l.next.clone())
	return r.batches, nil
}

// prepared waits for the step made ahead, and returns it if it is the one asked for and it succeeded: what
// failed is tried again.
func (l *Loader) prepared(step int64) (stepResult, bool) {
	if l.pending == nil {
		return stepResult{}, false
	}
	r := <-l.pending
	l.pending = nil
	return r, r.step == step && r.err == nil
}

// remember keeps the position from which a step was made, so that a run can go back to it; old ones are dropped.
func (l *Loader) remember(r stepResult) {
	l.starts[r.step] = r.start
	delete(l.starts, r.step-startsMax)
	l.next = r.end
}

// Position returns where the step after the last one returned begins.
func (l *Loader) Position() Position { return l.next.clone() }

// Seek makes the step that a position names the next. The zero Position is the start. It reads nothing; an
// *OrderError says that the position belongs to other data.
func (l *Loader) Seek(p Position) error {
	if p.Order == "" && p.Sample == 0 && p.Used == 0 && len(p.Sources) == 0 {
		p.Order, p.Sources = l.order, make([]SourcePosition, len(l.feed.cfg.Sources))
	}
	if p.Order != l.order {
		return &OrderError{Have: l.order, Want: p.Order}
	}
	if err := l.feed.check(p); err != nil {
		return err
	}
	l.prepared(-1)
	l.next = p.clone()
	l.starts = map[int64]Position{}
	l.feed.seek(l.next)
	return nil
}

// Order returns the fingerprint of the order of the data, as it stands in every Position.
func (l *Loader) Order() string { return l.order }

// Quarantined returns the documents that were found bad.
func (l *Loader) Quarantined() []Bad { return l.feed.cfg.Quarantine.List() }

// Close waits for what is being read. It closes neither sources nor quarantine.
func (l *Loader) Close() {
	l.prepared(-1)
	l.feed.close()
}

// check refuses positions that cannot be of this order, as from a damaged checkpoint.
func (f *feeder) check(p Position) error {
	ok := len(p.Sources) == len(f.cfg.Sources) && p.Step >= 0 && p.Sample >= 0 && p.Used >= 0 &&
		p.Used <= max(f.cfg.Shuffle, f.cfg.Window)
	for i, s := range p.Sources {
		n := f.queues[i].len()
		ok = ok && min(s.Taken, s.Pass, s.Doc, s.Token, s.Ahead, s.Given) >= 0 && s.Doc < n &&
			s.Ahead/int64(f.cfg.SeqLen+2) <= n
	}
	if !ok {
		return fmt.Errorf("loader: the position %+v cannot be one of this data", p)
	}
	return nil
}

// describe names the sources for messages.
func (c *LoaderConfig) describe() string {
	var names []string
	for _, s := range c.Sources {
		names = append(names, s.Source.Name())
	}
	return strings.Join(names, ", ")
}

// ErrNoTokens says that nothing in the data can be used: every document is bad or empty.
var ErrNoTokens = errors.New("no document gives any tokens")

// noTokens is that error of some data, with what was wrong with the last document that was set aside.
func (c *LoaderConfig) noTokens(of string) error {
	if c.Quarantine != nil {
		if bad := c.Quarantine.List(); len(bad) > 0 {
			return fmt.Errorf("%s: %w: %d are set aside, the last for: %s", of, ErrNoTokens, len(bad),
				bad[len(bad)-1].Reason)
		}
	}
	return fmt.Errorf("%s: %w", of, ErrNoTokens)
}
