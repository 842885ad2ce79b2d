package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
)

// Streamed is the training data of a run, for somebody else's training.
type Streamed struct {
	dataset.Batches
	SeqLen, MicroBatch, GlobalBatch int
	Kind                            dataset.Kind
	d                               *data
}

// OpenStream opens the training data that a configuration names as the run would, and writes nothing but the
// quarantine, to a folder; "" keeps that in memory. Data with images or videos is refused: its batches are
// the model's own.
func OpenStream(file string, args []string, quarantine string) (*Streamed, error) {
	d, conf, err := openAgain(file, args)
	if err != nil {
		return nil, err
	}
	s := &Streamed{SeqLen: conf.SeqLen, MicroBatch: conf.MicroBatch, GlobalBatch: conf.GlobalBatch,
		Kind: d.kind, d: d}
	if d.kind != dataset.KindText && d.kind != dataset.KindTokens && d.kind != dataset.KindChat {
		d.close()
		return nil, fmt.Errorf("the data holds %s; texts, ids and conversations are served", d.kind)
	}
	path := ""
	if quarantine != "" {
		path = filepath.Join(quarantine, "quarantine.jsonl")
	}
	if d.bad, err = dataset.OpenQuarantine(path); err == nil {
		conf.Quarantine = d.bad
		err = d.openTrain(conf)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	s.Batches = d.train
	return s, nil
}

// Close closes all that OpenStream has opened.
func (s *Streamed) Close() { s.d.close() }

// quarantine opens the run's quarantine, and reports whether this process writes the files of the run: all load, but one
// alone writes, and none where questions are answered. What another run set aside is not that of one that begins.
func (d *data) quarantine() (lead bool, err error) {
	lead = workerProc() == 0 && !d.r.asks
	if d.r.asks {
		d.bad, err = dataset.OpenQuarantine("")
	}
	if !lead {
		return false, err
	}
	dir := d.r.cfg.Run.Log.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	path := filepath.Join(dir, "quarantine.jsonl")
	if d.r.start.first == 1 && d.r.heir == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	d.bad, err = dataset.OpenQuarantine(path)
	return true, err
}
