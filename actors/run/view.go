package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/recipe"
	"github.com/lfactor/lfactor/dataset/setup"
	"github.com/lfactor/lfactor/dataset/store"
)

// ViewOptions say what a page about a run's data shows.
type ViewOptions struct {
	Args    []string         // KEY=VALUE behind the configuration's file
	Start   dataset.Position // where the first step that is shown began; the zero value is the beginning
	Number  int64            // of that step, for people
	Steps   int64
	Samples int64  // of each source
	Kind    string // type of samples; "" lets each tell
	Dropped bool   // show what recipes have dropped whose output the sources are
}

// AddView puts the rows of steps into a page as a run of a configuration trains them, and samples of its sources.
// It writes nothing.
func AddView(page *setup.View, file string, o ViewOptions) error {
	s, err := OpenView(file, o.Args)
	if err != nil {
		return err
	}
	defer s.Close()
	sources, sum := slices.Clone(s.Sources), 0.0
	for i := range sources {
		if s.d.ramps != nil { // as in the first step that is shown
			sources[i].Weight = s.d.ramps[i].At(sources[i].Weight, float64(o.Start.Step+1))
		}
		sum += sources[i].Weight
	}
	for _, w := range sources {
		page.AddSource(w.Source, w.Weight/sum)
	}
	if err := s.addRows(page, o); err != nil {
		return err
	}
	for i, w := range s.Sources {
		var tags dataset.Tags
		if len(s.Tags) == len(s.Sources) {
			tags = s.Tags[i]
		}
		if err := page.AddSamples(w.Source, o.Samples, o.Kind, tags); err != nil {
			return err
		}
	}
	if o.Dropped {
		return s.addDropped(page)
	}
	return nil
}

// errNoStep is told of a run that has recorded no step yet.
var errNoStep = errors.New("no step is recorded yet")

// AddStep puts the rows of a step of the run in a folder into a page, as its ledger says that they were trained:
// of the newest step where step is 0. It takes o's Samples and Kind, and writes nothing.
func AddStep(page *setup.View, dir string, step int64, o ViewOptions) error {
	l, err := dataset.ReadLedger(filepath.Join(dir, LedgerName))
	if err != nil {
		return fmt.Errorf("%w: %w", errNoStep, err)
	}
	defer l.Close() //nolint:errcheck // it was read only
	last, ok := l.Last()
	if !ok {
		return errNoStep
	}
	if step == 0 {
		step = last
	}
	if _, o.Start, err = l.Blame(step); err != nil {
		return err
	}
	o.Number, o.Steps, o.Dropped = step, 1, true
	page.Name = fmt.Sprintf("step %d of %s", step, dir)
	return AddView(page, filepath.Join(dir, "run.yaml"), o)
}

// addRows shows steps.
func (s *Streamed) addRows(page *setup.View, o ViewOptions) error {
	if o.Start.Step > 0 || o.Start.Order != "" {
		if err := s.Seek(o.Start); err != nil {
			return err
		}
	}
	var d setup.Decoder
	if tok := s.Tokenizer(); tok != nil {
		d = tok
	}
	for k := range o.Steps {
		if page.Full(fmt.Sprintf("steps %d to %d are", o.Number+k, o.Number+o.Steps-1)) {
			break
		}
		batches, err := s.Step(o.Start.Step + k)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		page.AddStep(o.Number+k, batches, d)
	}
	return nil
}

// addDropped shows what recipes have dropped that wrote the sources.
func (s *Streamed) addDropped(page *setup.View) error {
	seen := map[string]bool{}
	for _, w := range s.Sources {
		if store.Scheme(w.Source.Name()) != "" {
			continue
		}
		path := filepath.Join(filepath.Dir(w.Source.Name()), recipe.LedgerName)
		if _, err := os.Stat(path); err != nil || seen[path] {
			continue
		}
		seen[path] = true
		if err := page.AddDropped(path); err != nil {
			return err
		}
	}
	return nil
}
