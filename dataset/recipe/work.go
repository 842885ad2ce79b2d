package recipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"unicode/utf8"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
)

// flow is a recipe with its inputs open: what makes blocks, here and on other hosts.
type flow struct {
	*Recipe
	inputs []*opened
	units  [][]piece // of each stage
	hits   []*hits   // of each stage that signs, once it is resolved
	began  state     // what the work was begun with
}

// piece is the work that makes one block: a path of the stage, and a block of its source.
type piece struct{ path, block int }

// open opens a recipe's inputs and lists the units of its stages.
func (r *Recipe) open() (*flow, error) {
	inputs, err := r.openInputs()
	if err != nil {
		return nil, err
	}
	f := &flow{Recipe: r, inputs: inputs, hits: make([]*hits, len(r.stages))}
	for _, s := range r.stages {
		var list []piece
		for p, way := range s.paths {
			n := 0
			if way.from.input {
				n = len(inputs[way.from.at].blocks)
			} else {
				n = len(f.units[r.stageOf(way.from.at)])
			}
			for b := range n {
				list = append(list, piece{p, b})
			}
		}
		f.units = append(f.units, list)
	}
	return f, nil
}

// blockPath is where the block of a unit lies.
func (f *flow) blockPath(stage, u int) string {
	return f.work(fmt.Sprintf("stage-%02d", stage), fmt.Sprintf("%03d", u/1000), fmt.Sprintf("%06d.block", u))
}

// worker makes blocks, one after the other.
type worker struct {
	*flow
	desk *curate.Desk
	pack *packer
}

func (f *flow) newWorker() *worker { return &worker{f, curate.NewDesk(), newPacker()} }

// making is a block being made.
type making struct {
	*worker
	path
	stage stage
	block
}

// make makes the block of a unit and returns its file's content. with is what came along to this host, nil
// where inputs and blocks lie here.
func (w *worker) make(ctx context.Context, at, u int, with []byte) ([]byte, error) {
	s := w.stages[at]
	m := &making{worker: w, path: s.paths[w.units[at][u].path], stage: s}
	if s.step >= 0 {
		m.keys = make([][]byte, w.Steps[s.step].state().Form().Buckets)
	}
	var err error
	if b := w.units[at][u].block; m.from.input {
		err = m.fromInput(ctx, b)
	} else {
		err = m.fromGiven(b, with)
	}
	if err != nil {
		return nil, err
	}
	return m.encode(w.pack)
}

// readsMax is how often a document is tried whose reading fails for the moment.
const readsMax = 3

// fromInput takes the documents of an input's block through the steps.
func (m *making) fromInput(ctx context.Context, b int) error {
	in := m.inputs[m.from.at]
	span := in.blocks[b]
	for i := span.from; i < span.to; i++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		file, n := in.at(span, i)
		d, err := in.read(file, n)
		for try := 1; err != nil && try < readsMax && !isBad(err); try++ {
			d, err = in.read(file, n)
		}
		if err != nil && !isBad(err) {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fmt.Errorf("%w: the file is shorter than when it was opened; put it back and start the recipe "+
					"again", err)
			}
			return fmt.Errorf("input %q, document %d: %w", in.Name, d.Number, err)
		}
		if m.counts(0) {
			c := m.block.counts(in.Name)
			c.In++
			c.Bytes += int64(len(d.Text))
			c.Files += filesOf(d)
			if err != nil {
				c.drop(unreadable)
				m.block.drop(Drop{Input: in.Name, Document: d.Number, File: d.Place.File, Offset: d.Place.Offset,
					Step: in.Name, Reason: unreadable, Detail: badReason(err)})
			}
		}
		if err == nil {
			m.steps(d, m.from.at)
			if err := m.broken(d); err != nil {
				return err
			}
		}
	}
	return nil
}

// unreadable is the reason of documents that an input cannot give.
const unreadable = "unreadable"

func isBad(err error) bool {
	var bad *dataset.BadSample
	return errors.As(err, &bad)
}

func badReason(err error) string {
	var bad *dataset.BadSample
	if errors.As(err, &bad) {
		return bad.Reason
	}
	return err.Error()
}

// counts says whether a place of the path is counted here: 0 for the source, then the steps.
func (m *making) counts(place int) bool { return place >= m.path.counts }

// original says who a document of a stage is, by its number there.
func (f *flow) original(at int, doc uint64) (*Original, error) {
	u, local := f.hits[at].place(doc)
	b, err := openBlock(f.blockPath(at, u))
	if err != nil {
		return nil, err
	}
	defer b.close()
	input, number, err := b.original(local)
	if err != nil || input >= len(f.Inputs) {
		return nil, fmt.Errorf("block %s: its documents are damaged: %w", b.path, err)
	}
	return &Original{f.Inputs[input].Name, number}, nil
}

// steps takes a document through the steps of the path and into the sink.
func (m *making) steps(d *curate.Doc, input int) {
	for i, k := range m.path.steps {
		if !m.do(&m.Steps[k], d, m.counts(i+1)) {
			return
		}
	}
	if m.stage.step < 0 {
		if m.fits(d) {
			m.add(d, input)
		}
		return
	}
	s := &m.Steps[m.stage.step]
	if !m.do(s, d, true) {
		return
	}
	doc := uint32(m.head.Docs)
	m.add(d, input)
	s.state().Sign(m.desk, d, func(bucket int, unit uint32, key []byte) {
		k := append(m.keys[bucket], key...)
		m.keys[bucket] = appendTail(k, doc, unit)
	})
}

// fits reports whether the output of the stage can have a document; one that it cannot is dropped.
func (m *making) fits(d *curate.Doc) bool {
	o := &m.Outputs[m.stage.output]
	if o.writer.Fits == nil {
		return true
	}
	err := o.writer.Fits(d)
	switch {
	case err == nil:
		return true
	case !isBad(err):
		d.Broken = err
		return false
	}
	m.block.counts(o.counted()).drop(unwritable)
	line := dropOf(d, o.counted(), unwritable)
	line.Detail = badReason(err)
	m.block.drop(line)
	return false
}

// counted is the name that what an output drops is counted by; no input and no step has it.
func (o *Output) counted() string { return "output " + o.Name }

// filesOf is how many files a sample has that are neither its text nor its columns.
func filesOf(d *curate.Doc) (n int64) {
	if d.Sample == nil {
		return 0
	}
	s, err := d.Sample()
	if err != nil {
		return 0
	}
	for _, p := range s.Parts {
		if p.Name != curate.TextPart && p.Name != "json" {
			n++
		}
	}
	return n
}

// broken is the error of a document whose sample could not be read for the moment.
func (m *making) broken(d *curate.Doc) error {
	if d.Broken == nil {
		return nil
	}
	return fmt.Errorf("input %q, document %d: %w", d.Input, d.Number, d.Broken)
}

// do lets a step look at a document, and reports whether it stays.
func (m *making) do(s *Step, d *curate.Doc, counted bool) bool {
	size := len(d.Text)
	head, text := "", d.Text
	if s.step.Columns().Text {
		head = headOf(d.Text)
	}
	reason := s.step.Do(m.desk, d)
	if reason == "" && d.Derived && d.Text != text {
		reason = unwritable
	}
	if counted {
		c := m.block.counts(s.Name)
		c.In++
		c.Bytes += int64(size)
		if reason != "" {
			c.drop(reason)
			line := dropOf(d, s.Name, reason)
			if head != "" {
				line.Head = head
			}
			m.block.drop(line)
		}
	}
	return reason == ""
}

// dropOf is a line of the ledger about a document.
func dropOf(d *curate.Doc, step, reason string) Drop {
	return Drop{Input: d.Input, Document: d.Number, File: filepath.ToSlash(d.Place.File), Offset: d.Place.Offset,
		Step: step, Reason: reason, Detail: d.Detail, Head: headOf(d.Text)}
}

// headBytes is how much of a text the ledger shows.
const headBytes = 120

// headOf is the beginning of a text.
func headOf(s string) string {
	if len(s) <= headBytes {
		return s
	}
	n := headBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
