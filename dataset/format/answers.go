package format

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// recordKind is a kind of data whose samples are objects of JSON or rows of Parquet, of the shape that shapeOf calls by
// its name.
type recordKind struct {
	name, doc, file string // file is what Write calls it
	kind            dataset.Kind
	check           func(d *dataset.Document) error // the fault of a record, which is the part "json"
	// beside adds what a sample wants of other records to a good one; nil for nothing.
	beside func(s *answers, i int64, d *dataset.Document) error
}

// format is how such files are found, read and written. Write makes dir/file of the documents' parts "json".
func (k recordKind) format() dataset.Format {
	return dataset.Format{Name: k.name, Doc: k.doc, Kind: k.kind, Match: func(path string, head []byte) bool {
		return holdsObjects(path, head, k.name)
	}, Reads: mayHoldObjects, Open: func(path string, o dataset.Options) (dataset.Source, error) {
		r, err := openObjects(path, o)
		if err != nil {
			return nil, err
		}
		if o.Tags.Factory != "" {
			r = factory{r, o.Tags}
		}
		return &answers{r, k, store.Redact(path)}, nil
	}, Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		lines := make([]json.RawMessage, len(docs))
		for i, d := range docs {
			lines[i], _ = d.Part("json")
		}
		path := dir + "/" + k.file
		return path, dataset.Options{}, WriteLines(path, lines)
	}}
}

// answers are records of such a kind. Their name hides secrets.
type answers struct {
	Records
	of   recordKind
	name string
}

func (s *answers) Name() string        { return s.name }
func (s *answers) Kind() dataset.Kind  { return s.of.kind }
func (s *answers) Fingerprint() string { return HashOf(s.Records.Fingerprint(), s.of.name) }

// Read gives a record as it is, if it is a good one.
func (s *answers) Read(i int64) (dataset.Document, error) {
	b, place, err := s.Record(i)
	d := dataset.Document{Place: place, Key: fmt.Sprint(i)}
	if err != nil {
		return d, err
	}
	d.Parts = []dataset.Part{{Name: "json", Bytes: b}}
	if err = s.of.check(&d); err != nil {
		var bad *dataset.BadSample
		if !errors.As(err, &bad) {
			err = &dataset.BadSample{Place: place, Reason: err.Error()}
		}
		return d, err
	}
	if s.of.beside != nil {
		err = s.of.beside(s, i, &d)
	}
	return d, err
}
