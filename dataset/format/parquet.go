package format

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// Parquet: a column of texts. Row groups are decoded whole and the last ones used are kept, up to
// rowGroupsBytesMax; where the row groups of a data set are more than that and their order is random, write
// them as token ids first (Tokenize).
var _ = dataset.Register(dataset.Format{
	Name: "parquet",
	Doc:  "a column of texts in a Parquet file",
	Kind: dataset.KindText,
	Match: func(path string, head []byte) bool {
		return isParquet(path, head) && tableShape(typedParquet, path) == ""
	},
	Reads: isParquet,
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		p, err := openParquet(path, o)
		if err != nil {
			return nil, err
		}
		column := or(o.TextKey, "text")
		leaf, ok := p.file.Schema().Lookup(column)
		if !ok || leaf.Node.Type().Kind() != parquet.ByteArray || leaf.MaxRepetitionLevel > 0 {
			return nil, errors.Join(fmt.Errorf("it has no column of texts named %q; its columns are %s",
				column, p.file.Schema()), p.Close())
		}
		if err := p.checkCodecs(leaf.ColumnIndex); err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.print = HashOf(p.print, column)
		p.decode = func(g parquet.RowGroup) ([][]byte, error) { return p.column(g, leaf.ColumnIndex) }
		return &parquetTexts{parquetFile: p, name: store.Redact(path), column: column,
			rows: sync.OnceValues(func() (Records, error) { return OpenRows(path, o) })}, nil
	},
	Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		type row struct {
			Text string `parquet:"text,zstd"`
		}
		rows := make([]row, len(docs))
		for i, d := range docs {
			rows[i].Text = d.Text
		}
		path := filepath.Join(dir, "docs.parquet")
		return path, dataset.Options{}, parquet.WriteFile(path, rows, parquet.MaxRowsPerRowGroup(7))
	},
})

var _ = registerTable(tableFormat{isParquet, typedParquet, OpenRows})

func isParquet(path string, head []byte) bool {
	return HasSuffix(path, ".parquet") || bytes.HasPrefix(head, []byte("PAR1"))
}

// parquetFile gives the rows of a file as bytes, decoding a row group at a time.
type parquetFile struct {
	rowGroups
	file   *parquet.File
	decode func(parquet.RowGroup) ([][]byte, error)
	only   int // the column that is read, -1 for all
}

// openParquet opens a Parquet file; its row groups are decoded when one of their rows is read.
func openParquet(path string, o dataset.Options) (p *parquetFile, err error) {
	f, err := store.Open(path)
	if err != nil {
		return nil, err
	}
	p = &parquetFile{rowGroups: newRowGroups(f, o), only: -1}
	p.rowGroups.decode = p.decodeGroup
	if err = p.load(o.Full); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return p, nil
}

// load reads the metadata. A row group that would not fit into memory is refused here and not in the middle of a run.
func (p *parquetFile) load(full bool) error {
	var err error
	if p.print, err = FingerprintFile(p.os, p.os.Size(), full); err != nil {
		return err
	}
	err = guard(func() error {
		p.file, err = parquet.OpenFile(p.os, p.os.Size(), parquet.SkipBloomFilters(true))
		return err
	})
	if err != nil {
		return fmt.Errorf("it is no Parquet file, has no columns, or is damaged: %w", err)
	}
	rows := int64(0)
	for i, g := range p.file.RowGroups() {
		if size := p.file.Metadata().RowGroups[i].TotalByteSize; size > rowGroupsBytesMax {
			return fmt.Errorf("row group %d has %d bytes, over the limit of %d; write the file with "+
				"smaller row groups", i, size, rowGroupsBytesMax)
		}
		rows += g.NumRows()
		p.ends = append(p.ends, rows)
	}
	p.print = HashOf(p.print, p.limit)
	return nil
}

// checkCodecs refuses what nobody decodes, and notes the column that is read, -1 for all: what is not read may
// be compressed as it likes.
func (p *parquetFile) checkCodecs(column int) error {
	p.only = column
	for i, g := range p.file.Metadata().RowGroups {
		for k, c := range g.Columns {
			if p.reads(k) && c.MetaData.Codec == format.LZO {
				return fmt.Errorf("column %q of row group %d is compressed with LZO, which is not read; write the "+
					"file with zstd, snappy, gzip or brotli", strings.Join(c.MetaData.PathInSchema, "."), i)
			}
		}
	}
	return nil
}

// decodeGroup decodes row group k.
func (p *parquetFile) decodeGroup(k int) (rows [][]byte, err error) {
	use := func(r parquet.RowGroup) (err error) {
		rows, err = p.decode(r)
		return err
	}
	for column := range p.file.Metadata().RowGroups[k].Columns {
		if p.mended(k, column) {
			return rows, p.withOverlay(k, use)
		}
	}
	return rows, use(p.file.RowGroups()[k])
}

// column decodes a column with one value a row.
func (p *parquetFile) column(g parquet.RowGroup, column int) (rows [][]byte, err error) {
	pages := g.ColumnChunks()[column].Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	total := 0
	values := make([]parquet.Value, 256)
	for {
		page, err := pages.ReadPage()
		if err != nil {
			return rows, ignoreEOF(err)
		}
		in := page.Values()
		for more := true; more; {
			n, err := in.ReadValues(values)
			if ignoreEOF(err) != nil {
				return rows, err
			}
			more = err == nil
			for _, v := range values[:n] {
				rows = append(rows, textOf(v))
				if total += len(rows[len(rows)-1]); total > rowGroupsBytesMax {
					return nil, fmt.Errorf("it decodes to over %d bytes", rowGroupsBytesMax)
				}
			}
		}
		parquet.Release(page)
	}
}

// textOf copies a value, nil for null.
func textOf(v parquet.Value) []byte {
	if v.IsNull() {
		return nil
	}
	return append([]byte{}, v.ByteArray()...)
}

// parquetTexts are the texts of a column.
type parquetTexts struct {
	*parquetFile
	name, column string
	rows         func() (Records, error) // all columns; opened when they are asked for
	rowsUsed     atomic.Bool
}

// Columns implements dataset.Columned.
func (p *parquetTexts) Columns(i int64) ([]byte, dataset.Place, error) {
	p.rowsUsed.Store(true)
	r, err := p.rows()
	if err != nil {
		return nil, dataset.Place{File: p.os.Name(), Offset: i}, err
	}
	return r.Record(i)
}

// Close implements dataset.Source.
func (p *parquetTexts) Close() error {
	err := p.parquetFile.Close()
	if !p.rowsUsed.Load() {
		return err
	}
	r, bad := p.rows()
	if bad != nil { // it was told when it happened
		return err
	}
	return errors.Join(err, r.Close())
}

func (p *parquetTexts) Name() string       { return p.name }
func (p *parquetTexts) Kind() dataset.Kind { return dataset.KindText }

// Sizes implements dataset.Sized. They are known where the file is small enough that all of it stays in
// memory once it is read; of larger ones no row group is decoded for its rows' sizes alone.
func (p *parquetTexts) Sizes(from int64, out []int64) error {
	sum := int64(0)
	for i := range p.ends {
		sum += p.file.Metadata().RowGroups[i].TotalByteSize
	}
	if sum > parquetSizedMax {
		return dataset.ErrNoSizes
	}
	for k := range out {
		b, _, err := p.Record(from + int64(k))
		var bad *dataset.BadSample
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		out[k] = int64(len(b))
	}
	return nil
}

// parquetSizedMax is how many bytes of a file are decoded to know its rows' sizes.
const parquetSizedMax = 64 << 20

// Read reads the text column of row i; a null is a bad sample, not an empty text.
func (p *parquetTexts) Read(i int64) (dataset.Document, error) {
	b, place, err := p.Record(i)
	if err == nil && b == nil {
		err = &dataset.BadSample{Place: place, Reason: fmt.Sprintf("row %d: column %q is null", i, p.column)}
	}
	return dataset.Document{Text: string(b), Place: place}, err
}
