package recipe

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/format"
)

// Table is the typed columns of the documents of an output.
type Table struct {
	*format.Columns
	text  string // the column of texts
	plain string // a file that has no types, if there is one, so that those of the others cannot be kept
}

// table finds the columns of an output's documents, nil where no input is a table.
func (f *flow) table(o *Output) (*Table, error) {
	from, t := f.sources(o.From), &Table{}
	for _, in := range f.inputs {
		for i, s := range in.files {
			if _, ok := s.(dataset.Columned); !from[in.Name] || !ok || s.Kind().Form() == dataset.InParts {
				if from[in.Name] {
					t.plain = s.Name()
				}
				continue
			}
			c, err := format.TypedColumns(in.where[i])
			if err != nil {
				return nil, err
			}
			text := format.TextKey(in.TextKey)
			switch {
			case c == nil:
				t.plain = s.Name()
				continue
			case t.Columns == nil:
				t.Columns, t.text = c, text
				continue
			case text != t.text: // one name for all
				t.Rename(t.text, format.TextKey(""))
				c.Rename(text, format.TextKey(""))
				t.text = format.TextKey("")
			}
			if err := t.Merge(c); err != nil {
				return nil, fmt.Errorf("output %q: %w", o.Name, err)
			}
		}
	}
	if t.Columns == nil {
		return nil, nil
	}
	return t, nil
}

// typed is the table that an output is written as, nil where it is none, with the columns that steps have made.
func (f *flow) typed(at int, o *Output) (*Table, error) {
	if !o.writer.Typed {
		return nil, nil
	}
	t, err := f.table(o)
	if err != nil || t == nil || t.plain != "" {
		return nil, err
	}
	for u := 0; u < len(f.units[at]) && len(f.Steps) > 0 && err == nil; u++ {
		err = f.each(at, u, func(d *curate.Doc) error {
			for _, c := range d.Fields {
				t.Learn(c.Name, c.Value)
			}
			return nil
		})
	}
	return t, err
}

// note says what an output makes of the types of its documents, "" where it keeps them or there are none.
func (f *flow) note(o *Output) string {
	t, err := f.table(o)
	switch {
	case err != nil || t == nil:
	case o.writer.Typed && t.plain != "":
		return "the columns of all are one JSON text: " + t.plain + " has no types"
	case !o.writer.Typed && len(t.Untyped()) > 0:
		return o.Format + " has no types: texts are " + strings.Join(t.Untyped(), ", ") + "; parquet keeps them"
	}
	return ""
}

// tableWriter writes documents as rows of typed columns.
type tableWriter struct {
	*format.TableWriter
	text string
}

// Add implements DocWriter.
func (w tableWriter) Add(d *curate.Doc) error {
	err := w.TableWriter.Add(func(name string) json.RawMessage {
		if name == w.text && !d.Derived {
			return appendString(nil, d.Text)
		}
		return d.Field(name)
	})
	if err != nil {
		return fmt.Errorf("document %d of input %q: %w", d.Number, d.Input, err)
	}
	return nil
}
