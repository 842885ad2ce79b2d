package recipe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/lfactor/lfactor/dataset/curate"
)

// partName is the file of an output's part.
func (o *Output) partName(k int64) string {
	return fmt.Sprintf("%s-%05d%s", o.Name, k, o.writer.Ext(o.Compress))
}

// parts is how many files so many documents are written to.
func (o *Output) parts(total int64) int64 {
	if o.Files > 0 {
		return min(o.Files, total)
	}
	return (total + o.Documents - 1) / o.Documents
}

// span is the documents of file p.
func (o *Output) span(p, total int64) (from, to int64) {
	if n := o.parts(total); o.Files > 0 { // the first ones have one more where it does not divide
		each, more := total/n, total%n
		return p*each + min(p, more), (p+1)*each + min(p+1, more)
	}
	return p * o.Documents, min((p+1)*o.Documents, total)
}

// assemble writes the files of an output that are not there.
func (f *flow) assemble(ctx context.Context, at int, see Progress) error {
	o := &f.Outputs[f.stages[at].output]
	ends := make([]int64, len(f.units[at]))
	total := int64(0)
	for u := range ends {
		b, err := openBlock(f.blockPath(at, u))
		if err != nil {
			return err
		}
		total += int64(b.head.Docs)
		ends[u] = total
		if err := b.close(); err != nil {
			return err
		}
	}
	t, err := f.typed(at, o)
	if err != nil {
		return err
	}
	parts := o.parts(total)
	errs := make([]error, f.Workers)
	var wg sync.WaitGroup
	for k := range int64(f.Workers) {
		wg.Go(func() {
			for p := k; p < parts && errs[k] == nil; p += int64(f.Workers) {
				if errs[k] = ctx.Err(); errs[k] == nil {
					errs[k] = f.part(at, o, t, p, total, ends)
				}
				see("write "+o.Name, p+1, parts)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// part writes part p of an output, unless it is there.
func (f *flow) part(at int, o *Output, t *Table, p, total int64, ends []int64) error {
	path := filepath.Join(f.Output, o.partName(p))
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	from, to := o.span(p, total)
	return writeAtomic(path, func(file *os.File) error {
		buf := bufio.NewWriterSize(file, 1<<20)
		w, err := o.writer.Create(buf, o.Compress, t)
		if err != nil {
			return err
		}
		begin := int64(0)
		for u, end := range ends {
			if end > from && begin < to {
				n := begin
				if err := f.each(at, u, func(d *curate.Doc) error {
					n++
					if n <= from || n > to {
						return nil
					}
					return w.Add(d)
				}); err != nil {
					return err
				}
			}
			begin = end
		}
		return errors.Join(w.Close(), buf.Flush())
	})
}

// each reads the documents of a block.
func (f *flow) each(at, u int, do func(d *curate.Doc) error) error {
	b, err := openBlock(f.blockPath(at, u))
	if err != nil {
		return err
	}
	defer b.close()
	if err := b.verify(); err != nil {
		return err
	}
	docs, err := b.expanded(0)
	if err != nil {
		return err
	}
	return f.decode(docs, func(d *curate.Doc, _ int) error { return do(d) })
}

// ledger reads the lines of the ledger of a stage.
func (f *flow) ledger(at int, each func(d Drop)) error {
	return f.ledgerLines(at, func(line []byte) error {
		var d Drop
		if err := json.Unmarshal(line, &d); err != nil {
			return err
		}
		each(d)
		return nil
	})
}

// ledgerLines reads the lines of the ledger of a stage as they stand.
func (f *flow) ledgerLines(at int, each func(line []byte) error) error {
	for u := range f.units[at] {
		b, err := openBlock(f.blockPath(at, u))
		if err != nil {
			return err
		}
		lines, err := b.expanded(1)
		if err = errors.Join(err, b.close()); err != nil {
			return err
		}
		if err := dropLines(lines, each); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the ledger and the report, says that the recipe is done, and removes its work.
func (f *flow) finish(see Progress) (*Report, error) {
	see("report", 0, 0)
	rep, err := f.report()
	if err == nil {
		err = rep.missing(f.Output)
	}
	if err != nil {
		return nil, err
	}
	for i, o := range rep.Outputs {
		if end := f.Outputs[f.outputOf(i)].writer.Finish; end != nil {
			if err := end(f.Output, o.Files); err != nil {
				return nil, err
			}
		}
	}
	err = writeAtomic(filepath.Join(f.Output, LedgerName), func(file *os.File) error {
		w := bufio.NewWriterSize(file, 1<<20)
		for at := range f.stages {
			if err := f.ledgerLines(at, func(line []byte) error {
				_, err := w.Write(line)
				return err
			}); err != nil {
				return err
			}
		}
		return w.Flush()
	})
	if err != nil {
		return nil, err
	}
	if err := rep.write(f.Output); err != nil {
		return nil, err
	}
	done := f.began
	done.Done = true
	if err := f.putState(done); err != nil {
		return nil, err
	}
	return rep, os.RemoveAll(f.work())
}

// outputOf is the output that the i-th report of outputs is about.
func (f *flow) outputOf(i int) int {
	for _, s := range f.stages {
		if s.output < 0 {
			continue
		}
		if i == 0 {
			return s.output
		}
		i--
	}
	panic("recipe: a report of no output")
}

// LedgerName is the file with what was dropped and why, one JSON object a line.
const LedgerName = "dropped.jsonl"
