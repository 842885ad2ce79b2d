package run

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/token"
)

// Streamed is the training data of a run, for somebody else's training.
type Streamed struct {
	dataset.Batches
	SeqLen, MicroBatch, GlobalBatch int
	Kind                            dataset.Kind
	Sources                         []dataset.Weighted // none of data that grows
	Tags                            []dataset.Tags     // of the sources, where each has names of its own
	d                               *data
}

// Tokenizer is the run's, nil for data of ids that need none.
func (s *Streamed) Tokenizer() *token.Tokenizer { return s.d.r.tok }

// OpenStream opens the training data that a configuration names as the run would, and writes nothing but the
// quarantine, to a folder; "" keeps that in memory. Data with images or videos is refused: its batches are
// the model's own.
func OpenStream(file string, args []string, quarantine string) (*Streamed, error) {
	s, conf, err := newStreamed(file, args)
	if err != nil {
		return nil, err
	}
	switch s.Kind.Form() {
	case dataset.InParts, dataset.InRecord:
		s.Close()
		return nil, fmt.Errorf("the data holds %s; texts, ids and conversations are served", s.Kind)
	}
	path := ""
	if quarantine != "" {
		path = filepath.Join(quarantine, "quarantine.jsonl")
	}
	return s, s.begin(conf, path)
}

// OpenView is OpenStream of data of any kind whose samples are packed into rows, to look at.
func OpenView(file string, args []string) (*Streamed, error) {
	s, conf, err := newStreamed(file, args)
	if err != nil {
		return nil, err
	}
	return s, s.begin(conf, "")
}

// newStreamed opens sources.
func newStreamed(file string, args []string) (*Streamed, dataset.LoaderConfig, error) {
	d, conf, err := openAgain(file, args)
	if err != nil {
		return nil, conf, err
	}
	s := &Streamed{SeqLen: conf.SeqLen, MicroBatch: conf.MicroBatch, GlobalBatch: conf.GlobalBatch,
		Kind: d.kind, Sources: conf.Sources, d: d}
	for i := range d.r.cfg.SFT {
		s.Tags = append(s.Tags, setup.TagsOf(&d.r.cfg.SFT[i]))
	}
	return s, conf, nil
}

// begin opens the steps. Where that fails all is closed.
func (s *Streamed) begin(conf dataset.LoaderConfig, quarantine string) (err error) {
	if s.d.bad, err = dataset.OpenQuarantine(quarantine); err == nil {
		conf.Quarantine = s.d.bad
		err = s.d.openTrain(conf)
	}
	if err != nil {
		s.Close()
		return err
	}
	s.Batches = s.d.train
	return nil
}

// Close closes all that OpenStream has opened.
func (s *Streamed) Close() { s.d.close() }

// quarantine opens the run's quarantine, and reports whether this process writes the files of the run: all load, but
// one alone writes, and none where questions are answered. What another run set aside is not that of one that begins.
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
