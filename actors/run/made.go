package run

import (
	"fmt"

	"github.com/lfactor/lfactor/dataset"
)

// made is one step's data.
type made struct {
	batches    []dataset.Batch
	start, end dataset.Position
	old        bool // made before the run went back: whoever wants the step reads it again
}

// unlearntMax is how many steps may follow each other in which no token is learnt.
const unlearntMax = 10

// learns notes a step without a labelled token. Its loss is told as 0, as if the model knew everything. unlearntMax such
// steps in a row, or all of a shorter run, are dataset.ErrNoTokens: texts are empty, or answers are cut off.
func (d *data) learns(step int64, m *made) error {
	if d.rollouts != nil || d.images != nil || step <= 0 {
		return nil
	}
	tokens := 0
	for i := range m.batches {
		for _, l := range m.batches[i].Labels {
			if tokens++; l != dataset.IgnoreLabel {
				d.unlearnt = 0
				return nil
			}
		}
	}
	if d.unlearnt++; d.unlearnt == 1 {
		d.r.report.say("! step %d learns nothing: none of its %d tokens has a label; its loss is shown as 0", step, tokens)
	}
	if d.unlearnt < min(unlearntMax, int64(d.r.cfg.Run.Train.Steps)) {
		return nil
	}
	return fmt.Errorf("%w that are learnt: of the last %d steps none has a label; the texts are empty, or what is to be "+
		"learnt is cut off by data.seq_len; `lfactor data view` shows them", dataset.ErrNoTokens, d.unlearnt)
}
