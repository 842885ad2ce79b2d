package format

import (
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/dataset"
)

// Tokenize writes a source of texts as token ids to PREFIX.bin and PREFIX.idx, in the source's order, eod behind each
// text (none for -1). Documents that are bad are empty there and are given to quarantine, so that numbers stay the
// same. progress, which may be nil, hears how many documents are done.
func Tokenize(src dataset.Source, enc dataset.Encoder, prefix string, vocab int, eod int32, quarantine *dataset.Quarantine, progress func(done int64)) (err error) {
	if src.Kind() != dataset.KindText {
		return fmt.Errorf("tokenize %s: it holds %s, not text", src.Name(), src.Kind())
	}
	w, err := NewIndexedWriter(prefix, vocab)
	if err != nil {
		return err
	}
	for i := range src.Len() {
		ids, err := tokenizeOne(src, enc, i, eod, quarantine)
		if err == nil {
			err = w.Add(ids)
		}
		if err != nil {
			return errors.Join(fmt.Errorf("tokenize document %d of %s: %w", i, src.Name(), err), w.out.Flush(), w.file.Close())
		}
		w.EndDocument()
		if progress != nil {
			progress(i + 1)
		}
	}
	return w.Close()
}

func tokenizeOne(src dataset.Source, enc dataset.Encoder, i int64, eod int32, quarantine *dataset.Quarantine) ([]int32, error) {
	d, err := src.Read(i)
	var bad *dataset.BadSample
	if errors.As(err, &bad) {
		return nil, quarantine.Add(dataset.Bad{Source: src.Name(), Document: i, Place: bad.Place, Reason: bad.Reason})
	}
	if err != nil {
		return nil, err
	}
	ids := enc.Encode(d.Text, false)
	if eod >= 0 {
		ids = append(ids, eod)
	}
	return ids, nil
}
