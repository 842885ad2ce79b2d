package format

import (
	"context"

	"github.com/lfactor/lfactor/dataset"
)

// ConvertWork is what hosts do for Convert that are elsewhere, each part with the settings of its number;
// done closes what it has opened.
func ConvertWork(parts []ConvertConfig) (work dataset.Work, done func(), err error) {
	all := map[int]*conversion{}
	done = func() {
		for _, w := range all {
			_ = w.records.Close() // it was only read
		}
	}
	for i, c := range parts {
		if c.JSONFile == "" {
			continue
		}
		if all[i], err = openConversion(c); err != nil {
			delete(all, i)
			done()
			return nil, nil, err
		}
	}
	return func(ctx context.Context, part int, from, to int64) ([]byte, error) {
		return dataset.EncodeItems(ctx, from, to, func(i int64) converted {
			e := all[part].read(i)
			e.Fault = dataset.FaultOf(e.err)
			return e
		})
	}, done, nil
}
