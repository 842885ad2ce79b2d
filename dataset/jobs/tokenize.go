package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// TokenizeOptions of Tokenize.
type TokenizeOptions struct {
	Vocab      int   // ids of the tokenizer, which decide how many bytes an id takes
	EOD        int32 // behind each text; -1 for none
	Quarantine *dataset.Quarantine
	Budget     dataset.Budget   // of bad documents; its zero value allows any number
	Workers    int              // documents made ids of at once; 0 means 1
	Progress   func(done int64) // hears how many documents are done; nil for none
	Context    context.Context  // ends it; nil for none
	Elsewhere  dataset.Remote
}

// tokenizeChunk is how many documents are in memory at once.
const tokenizeChunk = 256

// Tokenize writes a source of texts as token ids to PREFIX.bin and PREFIX.idx, in the source's order.
// Documents that are bad are empty there and are given to quarantine, so that numbers stay the same.
func Tokenize(src dataset.Source, enc dataset.Encoder, prefix string, o TokenizeOptions) (err error) {
	if src.Kind().Form() != dataset.InText {
		return fmt.Errorf("tokenize %s: it holds %s, not text", src.Name(), src.Kind())
	}
	if o.Context == nil {
		o.Context = context.Background()
	}
	w, err := format.NewIndexedWriter(prefix, o.Vocab)
	if err != nil {
		return err
	}
	one := dataset.Items(o.Context, o.Elsewhere, 0, src.Len(), tokenizeBatch,
		func(i int64) tokenized { return o.one(src, enc, i) },
		func(err error) tokenized { return tokenized{Fault: dataset.FaultOf(err)} })
	for at := int64(0); at < src.Len(); at += tokenizeChunk {
		if err = o.Context.Err(); err == nil {
			err = o.chunk(src, one, w, at, min(at+tokenizeChunk, src.Len()))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("tokenize %s: %w", src.Name(), err), w.Abandon())
		}
	}
	return w.Close()
}

// tokenizeBatch is how many documents another host makes ids of at once.
const tokenizeBatch = 64

// tokenized is a document as ids, or why it has none.
type tokenized struct {
	IDs   []int32
	Fault dataset.Fault
	err   error // here
}

// TokenizeWork is what hosts do for Tokenize that are elsewhere.
func TokenizeWork(src dataset.Source, enc dataset.Encoder, o TokenizeOptions) dataset.Work {
	return func(ctx context.Context, _ int, from, to int64, _ []byte) ([]byte, error) {
		return dataset.EncodeItems(ctx, from, to, func(i int64) tokenized {
			t := o.one(src, enc, i)
			t.Fault = dataset.FaultOf(t.err)
			return t
		})
	}
}

// chunk makes ids of documents from to to-1 and writes them.
func (o *TokenizeOptions) chunk(src dataset.Source, one func(i int64) tokenized, w *format.IndexedWriter, from,
	to int64) error {
	done := make([]tokenized, to-from)
	workers := max(1, o.Workers)
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			for i := from + int64(k); i < to; i += int64(workers) {
				done[i-from] = one(i)
			}
		})
	}
	wg.Wait()
	for i, t := range done {
		if err := o.allow(src, errors.Join(t.err, t.Fault.Err()), from+int64(i)); err != nil {
			return fmt.Errorf("document %d: %w", from+int64(i), err)
		}
		if err := w.Add(t.IDs); err != nil {
			return err
		}
		w.EndDocument()
		if o.Progress != nil {
			o.Progress(from + int64(i) + 1)
		}
	}
	return nil
}

// allow quarantines a bad document and checks the budget. Other errors are passed on.
func (o *TokenizeOptions) allow(src dataset.Source, err error, i int64) error {
	var bad *dataset.BadSample
	if !errors.As(err, &bad) {
		return err
	}
	b := dataset.Bad{Source: src.Name(), Document: i, Place: bad.Place, Reason: bad.Reason}
	if err := o.Quarantine.Add(b); err != nil {
		return err
	}
	if n := int64(len(o.Quarantine.List())); o.Budget != (dataset.Budget{}) && !o.Budget.Allows(n, i+1) {
		return &dataset.BudgetError{Budget: o.Budget, Bad: n, Read: i + 1, Last: b}
	}
	return nil
}

// one reads and encodes document i, and ends it with the end-of-document token if there is one.
func (o *TokenizeOptions) one(src dataset.Source, enc dataset.Encoder, i int64) tokenized {
	d, err := src.Read(i)
	if err != nil {
		return tokenized{err: err}
	}
	ids, err := dataset.Encode(enc, d.Text, false)
	if err != nil {
		return tokenized{err: fmt.Errorf("%s: %w", d.Place, err)}
	}
	if o.EOD >= 0 {
		ids = append(ids, o.EOD)
	}
	return tokenized{IDs: ids}
}
