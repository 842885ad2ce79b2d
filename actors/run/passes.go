package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/topology/machine"
)

// passesName is the record, in log.dir, of how many steps the passes of a run are.
const passesName = "passes.json"

// passes are the steps of train.epochs over some data.
type passes struct {
	Data   string  `json:"data"` // what the steps follow from: the order of the data, and the sizes of batches
	Epochs float64 `json:"epochs"`
	Steps  int     `json:"steps"`
}

// at is how many passes are made with a step, 0 without train.epochs.
func (p passes) at(step int64) float64 {
	if p.Steps == 0 {
		return 0
	}
	return p.Epochs * float64(step) / float64(p.Steps)
}

// countSteps sets train.steps to the steps of train.epochs passes. A smaller train.steps that was given stays. Learning
// rates, evaluations and the end of the run follow from it. To count, all documents are read and packed once, without
// decoding media. The count is kept in log.dir, and a run that goes on takes it from there.
func (r *Run) countSteps() error {
	c := &r.cfg.Run
	if c.Train.Epochs == 0 {
		return nil
	}
	notes, quiet := newData(r).notes(), *r
	quiet.io.Progress = io.Discard // the run says it when it opens its data
	d := newData(&quiet)
	defer d.close()
	conf, err := d.opened()
	if err != nil {
		return err
	}
	conf.Prepare, conf.Quarantine = nil, nil
	l, err := dataset.OpenLoader(conf, r.encoder())
	if err != nil {
		return r.cfg.Fault("data.paths", err.Error(), "")
	}
	defer l.Close()
	have, p := passes{}, passes{Epochs: c.Train.Epochs,
		Data: fmt.Sprintf("%s %d %v", l.Order(), conf.GlobalBatch, conf.KeepLast)}
	path := filepath.Join(c.Log.Dir, passesName)
	if b, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(b, &have) // what is no record is counted anew
	}
	if have.Data == p.Data && have.Epochs == p.Epochs {
		p.Steps = have.Steps
	} else {
		fmt.Fprintln(notes, "note: train.epochs: the data is read once to count its steps")
		if p.Steps, err = d.count(l, conf.Passes); err != nil {
			return err
		}
	}
	last := "the last step of them is filled up with padding where samples are too few"
	if !conf.KeepLast {
		last = "samples that do not fill a last step are left out"
	}
	fmt.Fprintf(notes, "note: train.epochs = %g: %d steps, and %s\n", p.Epochs, p.Steps, last)
	r.passes = p
	if r.cfg.Origin("train.steps") != (configs.Origin{}) && c.Train.Steps < p.Steps {
		fmt.Fprintf(notes, "note: train.steps = %d ends the run before that\n", c.Train.Steps)
	} else {
		c.Train.Steps = p.Steps
	}
	if workerProc() != 0 || r.asks || have == p {
		return nil
	}
	b, err := json.Marshal(p)
	if err == nil {
		err = os.MkdirAll(c.Log.Dir, 0o700)
	}
	if err == nil {
		err = machine.ReplaceBytes(path, 0o600, b)
	}
	return err
}

// count takes steps until the passes are over.
func (d *data) count(l *dataset.Loader, all int64) (int, error) {
	n := 0
	for ; ; n++ {
		_, err := l.Step(int64(n))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	c := &d.r.cfg.Run
	if n == 0 {
		return 0, d.r.cfg.Fault("train.epochs", fmt.Sprintf("%d passes over the data do not fill one step of "+
			"train.global_batch = %d", all, c.Train.GlobalBatch), "lower that, or set data.drop_last to false")
	}
	if d.kind == dataset.KindPrompts { //lfvet:kind answers to prompts are learnt in several steps
		n *= c.Rollout.Updates
	}
	return int(math.Ceil(float64(n)*c.Train.Epochs/float64(all) - 1e-9)), nil
}
