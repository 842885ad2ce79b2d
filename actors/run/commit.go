package run

import (
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/lfactor/lfactor/actors/host"
	"github.com/lfactor/lfactor/stages/checkpoint"
)

// enteredWait is how long a checkpoint waits for the ledger to have its step, which the observer enters. It is
// as good as never needed whole: a disk that takes so long has the checkpoint wait as well.
const enteredWait = 10 * time.Second

// bestSaved is the checkpoint whose step has the lowest loss of an evaluation, with checkpoint.best; the older one of
// two alike.
func (r *Run) bestSaved() (best checkpoint.Entry, ok bool) {
	if !r.cfg.Run.Checkpoint.Best || r.report == nil {
		return best, false
	}
	all, err := checkpoint.List(r.cfg.Run.Checkpoint.Dir)
	if err != nil { // whoever reads it next says so
		return best, false
	}
	lowest := math.Inf(1)
	for _, e := range all { // the newest first
		if loss, evaluated := r.report.patience.lossAt(e.Step); evaluated && loss <= lowest {
			best, lowest, ok = e, loss, true
		}
	}
	return best, ok
}

// commit makes the checkpoint of a step durable, then removes what retention lets go.
func (r *Run) commit(step int64, parts []string, state []float64) error {
	c := r.cfg.Run.Checkpoint
	sections := r.sections(step, state)
	var copies host.Copier
	if r.mirror != nil {
		copies = r.mirror
	}
	// A run that ends here goes on from this step, and what the ledger lacks of it nobody enters later.
	r.data.entered(step, enteredWait)
	if err := host.CommitShards(checkpoint.OS, c.Dir, step, parts, sections, copies); err != nil {
		return err
	}
	var best []int64
	if b, ok := r.bestSaved(); ok {
		best = append(best, b.Step)
	}
	if b, err := os.ReadFile(filepath.Join(checkpoint.StepDir(c.Dir, step), checkpoint.ManifestName)); err == nil {
		r.chain.Save(step, b)
	}
	_, err := checkpoint.Prune(checkpoint.OS, c.Dir, c.Keep, best...)
	if err == nil {
		r.data.durable(step)
	}
	return err
}
