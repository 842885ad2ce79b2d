package format

import (
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// JSON lines: one object a line, whose text stands under a key. A file that is one JSON array of such
// objects is read too, and both compressed with gzip or zstd (.jsonl.gz, .jsonl.zst).
var _ = dataset.Register(dataset.Format{
	Name: "jsonl",
	Doc:  "JSON objects, one a line or in one array, with a text under a key",
	Kind: dataset.KindText,
	Match: func(path string, head []byte) bool {
		return holdsJSON(path, head) && shapeOf(keysOf(head)) == ""
	},
	Reads: holdsJSON,
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		r, err := OpenJSON(path, o)
		if err != nil {
			return nil, err
		}
		return newTexts(store.Redact(path), r, o), nil
	},
	Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		lines := make([]map[string]string, len(docs))
		for i, d := range docs {
			lines[i] = map[string]string{"text": d.Text}
		}
		path := filepath.Join(dir, "docs.jsonl")
		return path, dataset.Options{}, WriteLines(path, lines)
	},
})

// texts are the texts of records.
type texts struct {
	Records
	name, key string
}

// newTexts makes a source of texts from records; the text is under the key "text" unless another is given.
func newTexts(name string, r Records, o dataset.Options) *texts {
	if o.TextKey == "" {
		o.TextKey = "text"
	}
	return &texts{r, name, o.TextKey}
}

func (t *texts) Name() string        { return t.name }
func (t *texts) Kind() dataset.Kind  { return dataset.KindText }
func (t *texts) Fingerprint() string { return HashOf(t.Records.Fingerprint(), t.key) }

// Sizes implements dataset.Sized.
func (t *texts) Sizes(from int64, out []int64) error {
	if s, ok := t.Records.(dataset.Sized); ok {
		return s.Sizes(from, out)
	}
	return dataset.ErrNoSizes
}

// Columns implements dataset.Columned.
func (t *texts) Columns(i int64) ([]byte, dataset.Place, error) { return t.Record(i) }

// Read reads one record and takes the text from its key.
func (t *texts) Read(i int64) (dataset.Document, error) {
	b, place, err := t.Record(i)
	d := dataset.Document{Place: place}
	if err != nil {
		return d, err
	}
	m, err := object(b, place)
	if err != nil {
		return d, err
	}
	d.Text, err = member(m, t.key, place)
	return d, err
}

// TextKey is the key that a record's text is under, where one is given or not.
func TextKey(given string) string { return or(given, "text") }
