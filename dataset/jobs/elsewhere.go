package jobs

import (
	"context"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/format"
)

// ConvertWork is what hosts do for Convert that are elsewhere, each part with the settings of its number;
// done closes what it has opened.
func ConvertWork(parts []ConvertConfig) (work dataset.Work, done func(), err error) {
	all := map[int]*format.Annotations{}
	done = func() {
		for _, w := range all {
			_ = w.Close() // it was only read
		}
	}
	for i, c := range parts {
		if c.JSONFile == "" {
			continue
		}
		if all[i], err = format.OpenAnnotations(c.AnnotationOptions); err != nil {
			delete(all, i)
			done()
			return nil, nil, err
		}
	}
	return func(ctx context.Context, part int, from, to int64, _ []byte) ([]byte, error) {
		return dataset.EncodeItems(ctx, from, to, func(i int64) converted {
			e := entryOf(all[part], i)
			e.Fault = dataset.FaultOf(e.err)
			return e
		})
	}, done, nil
}
