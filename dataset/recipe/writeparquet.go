package recipe

import (
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/lfactor/lfactor/dataset/curate"
)

// parquet: the columns of tables with their types; of what has none two columns of texts, "text" and "metadata", the
// other columns as a JSON object, so that all files have one schema.
var _ = RegisterWriter(Writer{Name: "parquet",
	Doc:   "Parquet, compressed with zstd: the columns of tables with their types, else text and metadata (JSON)",
	Ext:   func(string) string { return ".parquet" },
	Typed: true, Create: func(w io.Writer, _ string, t *Table) (DocWriter, error) {
		if t != nil {
			out, err := t.NewWriter(w)
			return tableWriter{out, t.text}, err
		}
		return &parquetWriter{parquet.NewGenericWriter[parquetRow](w, parquet.MaxRowsPerRowGroup(parquetRows))}, nil
	}})

// parquetRows is the size of a row group.
const parquetRows = 10_000

type parquetRow struct {
	Text     string `parquet:"text,zstd"`
	Metadata string `parquet:"metadata,zstd"`
}

type parquetWriter struct {
	w *parquet.GenericWriter[parquetRow]
}

func (p *parquetWriter) Add(d *curate.Doc) error {
	_, err := p.w.Write([]parquetRow{{d.Text, string(appendRecord(nil, d, ""))}})
	return err
}

func (p *parquetWriter) Close() error { return p.w.Close() }
