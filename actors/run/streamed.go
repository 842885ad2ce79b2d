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

// openAside opens a run's quarantine; what another run set aside is not that of one that begins.
func openAside(path string, fresh bool) (*dataset.Quarantine, error) {
	if fresh {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return dataset.OpenQuarantine(path)
}
