package format

import (
	"encoding/json"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// ofRecords is a format whose samples are objects of JSON or rows of Parquet, of the shape that shapeOf calls
// by the format's name. Write makes dir/file of the documents' parts "json", and source reads records under
// the name of their file, in which secrets are hidden.
func ofRecords(name, doc string, kind dataset.Kind, file string,
	source func(r Records, name string) dataset.Source) dataset.Format {
	return dataset.Format{Name: name, Doc: doc, Kind: kind, Match: func(path string, head []byte) bool {
		return holdsObjects(path, head, name)
	}, Reads: mayHoldObjects, Open: func(path string, o dataset.Options) (dataset.Source, error) {
		r, err := openObjects(path, o)
		if err != nil {
			return nil, err
		}
		return source(r, store.Redact(path)), nil
	}, Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		lines := make([]json.RawMessage, len(docs))
		for i, d := range docs {
			lines[i], _ = d.Part("json")
		}
		path := dir + "/" + file
		return path, dataset.Options{}, WriteLines(path, lines)
	}}
}
