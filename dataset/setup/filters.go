package setup

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/lfactor/lfactor/configs"
	"github.com/lfactor/lfactor/configs/source"
	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/recipe"
)

// Filters are the steps of data.filters: those of a recipe that keep no state, on the way of training.
type Filters struct {
	steps []namedStep
	print string
	text  bool   // some step changes texts
	key   string // data.text_key
	desks sync.Pool
}

type namedStep struct {
	name string
	step curate.Step
}

// OpenFilters reads data.filters. The filters of a run without them do nothing.
func OpenFilters(c *configs.Config) (*Filters, error) {
	f := &Filters{key: c.Run.Data.TextKey, desks: sync.Pool{New: func() any { return curate.NewDesk() }}}
	file := c.Run.Data.Filters
	if file == "" {
		return f, nil
	}
	text, err := source.ReadFile(file)
	if err != nil {
		return nil, c.Fault("data.filters", err.Error(), "name a file with steps")
	}
	root, err := source.ParseYAML(file, text)
	if err != nil {
		return nil, err
	}
	r := &curate.Reader{File: file}
	var none struct{}
	r.Into(root, "", &none, "steps")
	list := source.Lookup(root, "steps")
	if list == nil || len(list.Content) == 0 {
		r.Fail(root.Line, "steps", "none is given", source.OneOf(curate.Names()))
		return nil, r.Err()
	}
	for i, n := range list.Content {
		key := fmt.Sprintf("steps[%d]", i)
		k, settings := r.Kind(n, key)
		if settings == nil {
			continue
		}
		s := r.Open(k, settings, key, "step")
		if _, keeps := s.(curate.Stateful); keeps {
			r.Fail(n.Line, key, fmt.Sprintf("%s has to see all documents before it decides", k.Name),
				"make the data clean with `lfactor data run` first")
		}
		if s != nil {
			f.steps = append(f.steps, namedStep{k.Name, s})
			f.text = f.text || s.Columns().Text
		}
	}
	sum := sha256.Sum256(text)
	f.print = hex.EncodeToString(sum[:16])
	return f, r.Err()
}

// Of returns a source whose documents have gone through the filters. Those that are dropped stay where they
// are, with nothing in them, so that numbers and positions do not change. Conversations in samples have the
// names that tags gives.
func (f *Filters) Of(s dataset.Source, tags dataset.Tags) (dataset.Source, error) {
	what, derived := recipe.Derived[s.Kind().Form()]
	switch {
	case len(f.steps) == 0:
		return s, nil
	case !derived && s.Kind().Form() != dataset.InText:
		return nil, fmt.Errorf("%s holds %s, and filters look at texts and images; leave data.filters out", s.Name(),
			s.Kind())
	case derived && f.text:
		return nil, fmt.Errorf("%s holds %s, and some filter changes texts; leave that one out", s.Name(), what)
	}
	return &filtered{s, f, tags}, nil
}

// filtered is a source behind filters.
type filtered struct {
	dataset.Source
	f    *Filters
	tags dataset.Tags
}

// Fingerprint covers the filters.
func (s *filtered) Fingerprint() string { return s.Source.Fingerprint() + "-" + s.f.print }

// Sizes implements dataset.Sized: they are those before the filters.
func (s *filtered) Sizes(from int64, out []int64) error {
	if sized, ok := s.Source.(dataset.Sized); ok {
		return sized.Sizes(from, out)
	}
	return dataset.ErrNoSizes
}

// Read reads a document and takes it through the filters.
func (s *filtered) Read(i int64) (dataset.Document, error) {
	d, err := s.Source.Read(i)
	if err != nil {
		return d, err
	}
	c := &curate.Doc{Text: d.Text, Input: s.Name(), Number: i, Place: d.Place}
	switch s.Kind().Form() {
	case dataset.InMessages:
		c.Text, c.Derived = curate.Talk(d.Messages), true
	case dataset.InParts:
		sample := d
		if c, err = recipe.SampleDoc(&sample, s.f.key, s.tags); err != nil {
			return d, err
		}
		c.Input, c.Number, c.Derived = s.Name(), i, true
	}
	desk := s.f.desks.Get().(*curate.Desk)
	defer s.f.desks.Put(desk)
	for _, step := range s.f.steps {
		if reason := step.step.Do(desk, c); reason != "" {
			d.Left = step.name + ": " + reason
			break
		}
	}
	if !c.Derived {
		d.Text = c.Text
	}
	return d, nil
}
