package dataset

import (
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"
)

// feeder makes rows in the global order. A block of rows is made at once: a block of windows whose order is shuffled,
// or the packs of a window of documents. The position of a row is the block's start and the rows used of it.
type feeder struct {
	cfg    LoaderConfig
	queues []*docQueue
	fetch  *fetcher
	began  time.Time
	packed atomic.Int64 // nanoseconds spent on blocks, waiting included
	rowsIn atomic.Int64 // rows made
	laid   atomic.Int64 // nanoseconds spent on batches
	given  atomic.Int64 // batches

	start Position // of the block; Used counts the rows given
	after Position // behind the block, when rows are made
	rows  []row    // nil: not made yet
}

// newFeeder makes the stages that turn documents into rows: one queue per source, and the pools
// that read and encode. A run without a file for bad samples still counts them.
func newFeeder(cfg LoaderConfig, all []*units, enc Encoder) *feeder {
	if cfg.Quarantine == nil {
		cfg.Quarantine, _ = OpenQuarantine("") // without a file it cannot fail
	}
	f := &feeder{cfg: cfg, began: time.Now()}
	f.fetch = &fetcher{seqLen: cfg.SeqLen, vocab: int32(cfg.Vocab), sources: cfg.Sources, enc: enc,
		chat: cfg.Chat, samples: cfg.Samples, addSpecial: cfg.Special, eod: cfg.EOD,
		cache: tokenCache{room: cfg.CacheBytes}, verdicts: newVerdicts(cfg.Sources)}
	f.fetch.begin(cfg)
	for i := range cfg.Sources {
		f.queues = append(f.queues, newDocQueue(f.fetch, i, all[i], &f.cfg))
	}
	return f
}

// seek goes to a position. It reads nothing.
func (f *feeder) seek(p Position) {
	if p.Sample != f.start.Sample || !slices.Equal(p.Sources, f.start.Sources) {
		f.rows = nil
		if f.fetch.decoding != nil {
			f.fetch.decoding.clear()
		}
	}
	f.start = p.clone()
}

// step makes the microbatches of the step at the feeder's position, which is start.
func (f *feeder) step(start Position) (r stepResult) {
	r = stepResult{step: start.Step, start: start}
	rows := make([]row, 0, f.cfg.GlobalBatch)
	for len(rows) < f.cfg.GlobalBatch {
		next, err := f.row()
		if err == io.EOF && f.cfg.KeepLast && len(rows) > 0 {
			rows = append(rows, make([]row, f.cfg.GlobalBatch-len(rows))...)
			break
		}
		if err != nil {
			r.err = err // who asks says for which step
			return r
		}
		rows = append(rows, next)
	}
	began := time.Now()
	defer func() { f.laid.Add(int64(time.Since(began))); f.given.Add(int64(len(r.batches))) }()
	for at := 0; at < len(rows); at += f.cfg.MicroBatch {
		r.batches = append(r.batches, newBatch(rows[at:at+f.cfg.MicroBatch], f.cfg.SeqLen, f.cfg.Pad))
	}
	if h := f.fetch.decoding; h != nil {
		for i := range r.batches {
			for k := range r.batches[i].Media {
				h.ahead(&r.batches[i].Media[k])
			}
		}
	}
	r.end = f.position(start.Step + 1)
	return r
}

// row returns the next row.
func (f *feeder) row() (row, error) {
	for f.rows == nil || f.start.Used >= len(f.rows) {
		if f.rows != nil {
			f.start, f.rows = f.after, nil
		}
		if err := f.fill(); err != nil {
			return row{}, err
		}
	}
	f.start.Used++
	return f.rows[f.start.Used-1], nil
}

// position returns where the next row is taken, as the start of a step.
func (f *feeder) position(step int64) Position {
	p := f.start
	if f.rows != nil && p.Used >= len(f.rows) {
		p = f.after
	}
	p = p.clone()
	p.Step = step
	return p
}

// fill makes the rows of the block at f.start. When it fails nothing has changed.
func (f *feeder) fill() error {
	m := maker{feeder: f, at: f.start.clone(), blend: newBlend(&f.cfg, &f.start)}
	m.at.Used = 0
	began := time.Now()
	rows, err := m.make()
	f.packed.Add(int64(time.Since(began)))
	f.rowsIn.Add(int64(len(rows)))
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return io.EOF
	}
	if f.start.Used > len(rows) {
		return fmt.Errorf("the position is at row %d of a block of %d: the data has changed", f.start.Used, len(rows))
	}
	if m.blend.due != nil {
		m.at.Rows += int64(len(rows))
		for i, due := range m.blend.due {
			m.at.Sources[i].Due = due
		}
	}
	f.rows, f.after = rows, m.at
	return nil
}

// close ends the pools of workers; media are decoded by a pool only where the model takes some.
func (f *feeder) close() {
	f.fetch.reading.close()
	f.fetch.encoding.close()
	if h := f.fetch.decoding; h != nil {
		h.pool.close()
	}
}

// maker makes one block; at moves from the block's start to its end.
type maker struct {
	*feeder
	at    Position
	blend blend
	cuts  []*cutter // of each source, nil where nothing was cut yet
}

// make makes the rows of the next step, as packs of whole conversations or as windows of running text.
func (m *maker) make() ([]row, error) {
	if m.cfg.Mode == ModeSFT {
		return m.packs()
	}
	return m.windows()
}

// take counts a sample of a source.
func (m *maker) take(source int) {
	m.at.Sources[source].Taken++
	m.at.Sample++
}

// advance moves a source to the document behind the one it is at.
func (m *maker) advance(s *SourcePosition, source int) {
	s.Token = 0
	if s.Doc++; s.Doc == m.queues[source].len() {
		s.Doc = 0
		s.Pass++
	}
}

// over says whether a source has no more passes.
func (m *maker) over(s SourcePosition) bool { return m.cfg.Passes > 0 && s.Pass >= m.cfg.Passes }

// inspect quarantines a bad document and checks the budget.
func (m *maker) inspect(source int, s SourcePosition, d *pendingDoc) error {
	if d.out.bad == nil {
		return nil
	}
	bad := Bad{Source: m.cfg.Sources[source].Source.Name(), Document: d.doc, Place: d.out.bad.Place,
		Reason: d.out.bad.Reason}
	if err := m.cfg.Quarantine.Add(bad); err != nil {
		return err
	}
	// each is met once a pass, and a document that cannot be read with each piece
	if s.Pass == 0 && (d.piece == 0 && d.part != partRest || !d.out.whole) {
		m.at.Bad++
	}
	read := s.Pass*m.queues[source].len() + s.Doc + 1
	for i, other := range m.at.Sources {
		if i != source {
			read += other.Pass*m.queues[i].len() + other.Doc
		}
	}
	if !m.cfg.Budget.Allows(m.at.Bad, read) {
		return &BudgetError{Budget: m.cfg.Budget, Bad: m.at.Bad, Read: read, Last: bad}
	}
	return nil
}

// begin starts the pools of a fetcher. A queue may be ahead by what keeps all workers busy.
func (f *fetcher) begin(c LoaderConfig) {
	workers, most := c.Readers+c.Encoders, max(c.Readers, c.Encoders)
	if c.Prepare != nil {
		workers, most = workers+c.Decoders, max(most, c.Decoders)
	}
	f.ahead = 1
	if most > 1 {
		f.ahead = 2 * workers
	}
	credits := f.ahead * len(f.sources)
	f.reading = newPool("read", c.Readers, credits, true) // who packs gives its tasks
	f.encoding = newPool("encode", c.Encoders, credits, f.reading.tasks == nil)
	if c.Prepare != nil {
		f.decoding = newHold(c.Prepare, c.HoldBytes, newPool("decode", c.Decoders, credits, f.encoding.tasks == nil))
	}
}

// Stages tells what each stage of the pipeline has done, and since when.
func (l *Loader) Stages() ([]Stage, time.Duration) {
	f := l.feed
	out := []Stage{f.fetch.reading.stage(), f.fetch.encoding.stage()}
	if h := f.fetch.decoding; h != nil {
		out = append(out, h.pool.stage())
	}
	return append(out, Stage{"pack", 1, f.rowsIn.Load(), time.Duration(max(0, f.packed.Load()-f.fetch.waited.Load()))},
		Stage{"batch", 1, f.given.Load(), time.Duration(f.laid.Load())}), time.Since(f.began)
}
