package recipe

import (
	"io"

	"github.com/lfactor/lfactor/dataset/curate"
	"github.com/lfactor/lfactor/dataset/format"
)

// arrow: two columns of texts, as in Parquet.
var _ = RegisterWriter(Writer{Name: "arrow",
	Doc: "Arrow (Feather 2) with the columns text and metadata (JSON), compressed with zstd",
	Ext: func(string) string { return ".arrow" },
	Create: func(w io.Writer, _ string, _ *Table) (DocWriter, error) {
		return arrowWriter{format.NewArrowTexts(w)}, nil
	}})

type arrowWriter struct{ *format.ArrowTexts }

// Add implements DocWriter.
func (a arrowWriter) Add(d *curate.Doc) error {
	return a.ArrowTexts.Add(d.Text, string(appendRecord(nil, d, "")))
}
