package recipe

import (
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/lfactor/lfactor/dataset/curate"
)

// parquet: two columns of texts, "text" and "metadata", the other columns as a JSON object, so that all
// files have one schema.
var _ = RegisterWriter(Writer{Name: "parquet",
	Doc: "Parquet with the columns text and metadata (JSON), compressed with zstd",
	Ext: func(string) string { return ".parquet" },
	Create: func(w io.Writer, _ string) (DocWriter, error) {
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
