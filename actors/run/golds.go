package run

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/actors/reward"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/stages/fit"
)

// goldsSeen are the records of each source whose reward.column is looked at before a run begins.
const goldsSeen = 64

// golds holds reward.column to the data, before answers are drawn: it is a fault of the configuration where no record
// that is looked at has what answers can be judged by, and a note where some have not, whose answers will be set aside.
func (d *data) golds(train []dataset.Weighted) error {
	if d.rollouts == nil || fit.Loss(d.r.cfg).Policy.Unjudged {
		return nil
	}
	for _, s := range train {
		n, without := 0, 0
		var first error
		for i := range min(goldsSeen, s.Source.Len()) {
			doc, err := s.Source.Read(i)
			if bad := new(dataset.BadSample); errors.As(err, &bad) {
				continue // it is set aside when its turn comes
			} else if err != nil {
				return err
			}
			var record map[string]json.RawMessage
			raw, _ := doc.Part("json")
			if json.Unmarshal(raw, &record) != nil {
				continue
			}
			n++
			if err := reward.Judges(&d.r.cfg.Run.Reward, record); err != nil {
				if without++; first == nil {
					first = fmt.Errorf("%s: %w", doc.Place, err)
				}
			}
		}
		switch {
		case without == 0:
		case without == n:
			return d.r.cfg.Fault("reward.column", first.Error(), "name the column that has the right answers")
		default:
			_, _ = fmt.Fprintf(d.notes(), "! of the first %d records of %s %d cannot be judged, and their answers "+
				// a screen's fault is its own
				"will be set aside; the first: %v\n", n, s.Source.Name(), without, first)
		}
	}
	return nil
}
