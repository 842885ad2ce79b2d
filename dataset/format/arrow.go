package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	fb "github.com/google/flatbuffers/go"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// Arrow: a column of texts in an IPC file (Feather, version 2) or an IPC stream, as Hugging Face's
// save_to_disk writes. Record batches are decoded whole and the last ones used are kept, as row groups
// of Parquet are.
var _ = dataset.Register(dataset.Format{
	Name: "arrow",
	Doc:  "a column of texts in an Arrow file or stream, or Feather",
	Kind: dataset.KindText,
	Match: func(path string, head []byte) bool {
		return isArrow(path, head) && tableShape(typedArrows, path) == ""
	},
	Reads: isArrow,
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		r, err := openArrowFile(path, o)
		if err != nil {
			return nil, err
		}
		if f, ok := r.schema.FieldsByName(TextKey(o.TextKey)); !ok || !isArrowText(f[0].Type) {
			return nil, errors.Join(fmt.Errorf("it has no column of texts named %q; its columns are %s",
				TextKey(o.TextKey), r.schema), r.Close())
		}
		return newTexts(store.Redact(path), r, o), nil
	},
	Write: func(dir string, docs []dataset.Document) (string, dataset.Options, error) {
		var b bytes.Buffer
		w := NewArrowTexts(&b)
		for _, d := range docs {
			if err := w.Add(d.Text, "{}"); err != nil {
				return "", dataset.Options{}, err
			}
		}
		path := filepath.Join(dir, "docs.arrow")
		return path, dataset.Options{}, errors.Join(w.Close(), os.WriteFile(path, b.Bytes(), 0o644))
	},
})

var _ = registerTable(tableFormat{isArrow, typedArrows,
	func(path string, o dataset.Options) (Records, error) { return openArrowFile(path, o) }})

// What Arrow's files begin with: the file format, what frames messages in both, and Feather of version
// 1, which is another format.
const (
	arrowMagic    = "ARROW1"
	arrowFrame    = "\xff\xff\xff\xff"
	feather1Magic = "FEA1"
	arrowMetaMax  = 64 << 20 // bytes of a message's description
)

func isArrow(path string, head []byte) bool {
	return HasSuffix(path, ".arrow", ".arrows", ".feather", ".ipc") || bytes.HasPrefix(head, []byte(arrowMagic)) ||
		len(head) > 8 && bytes.HasPrefix(head, []byte(arrowFrame)) && head[7] == 0 || // a stream's first message, no text
		bytes.HasPrefix(head, []byte(feather1Magic))
}

// isArrowText says whether a column of a type holds texts.
func isArrowText(t arrow.DataType) bool {
	if d, ok := t.(*arrow.DictionaryType); ok {
		t = d.ValueType
	}
	switch t.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return true
	}
	return false
}

// arrowMessage is a message of a stream: where it lies, with what frames it.
type arrowMessage struct {
	at, size int64
	kind     byte
	rows     int64
}

// The kinds of messages that matter. Source: Arrow's Message.fbs.
const (
	arrowSchema     = 1
	arrowDictionary = 2
	arrowBatch      = 3
)

// arrowFile is a file of record batches.
type arrowFile struct {
	rowGroups
	schema  *arrow.Schema
	first   int64          // where messages begin
	last    int64          // where they end at the latest: at the footer of a file
	head    arrowMessage   // the schema
	shared  []arrowMessage // dictionaries
	batches []arrowMessage
}

// openArrowFile opens a file or stream and finds its record batches.
func openArrowFile(path string, o dataset.Options) (*arrowFile, error) {
	f, err := store.Open(path)
	if err != nil {
		return nil, err
	}
	a := &arrowFile{rowGroups: newRowGroups(f, o)}
	a.decode = a.rows
	if a.print, err = FingerprintFile(f, f.Size(), o.Full); err == nil {
		if err = guard(a.readSchema); err == nil {
			err = guard(a.walk)
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	a.print = HashOf(a.print, "arrow", a.limit)
	return a, nil
}

// readSchema reads what a file begins with.
func (a *arrowFile) readSchema() error {
	head := make([]byte, 8)
	if n, err := a.os.ReadAt(head, 0); n < len(head) && err != nil {
		return fmt.Errorf("it has %d bytes, too few for an Arrow file: %w", a.os.Size(), err)
	}
	switch {
	case bytes.HasPrefix(head, []byte(feather1Magic)):
		return errors.New("it is Feather of version 1; write it anew with pyarrow.feather.write_feather, " +
			"whose version 2 is read")
	case bytes.HasPrefix(head, []byte(arrowMagic)):
		a.first = 8
		if err := a.findFooter(); err != nil {
			return err
		}
	case !bytes.HasPrefix(head, []byte(arrowFrame)):
		return fmt.Errorf("it begins with %q, as no Arrow file does", head)
	}
	m, err := a.message(a.first)
	if err != nil {
		return err
	}
	if m.kind != arrowSchema {
		return errors.New("damaged: it does not begin with a schema")
	}
	a.head = m
	r, err := ipc.NewReader(a.section(m), ipc.WithAllocator(newBounded()))
	if err != nil {
		return fmt.Errorf("its schema: %w", err)
	}
	a.schema = r.Schema()
	r.Release()
	return nil
}

// findFooter finds where the footer of a file begins; a file that was cut off has none.
func (a *arrowFile) findFooter() error {
	var end [4 + len(arrowMagic)]byte
	size := a.os.Size()
	if n, err := a.os.ReadAt(end[:], max(0, size-int64(len(end)))); n < len(end) && err != io.EOF {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(end[:]))
	if string(end[4:]) != arrowMagic || n > size-int64(len(end))-a.first {
		return fmt.Errorf("damaged: it ends at byte %d without a footer: it is half written, or was cut off", size)
	}
	a.last = size - int64(len(end)) - n
	return nil
}

// message reads the frame and the description of the message at a place; its kind is 0 behind the last one.
func (a *arrowFile) message(at int64) (m arrowMessage, err error) {
	var head [8]byte
	if a.last > 0 && at >= a.last {
		return m, nil
	}
	n, err := a.os.ReadAt(head[:], at)
	if n < len(head) {
		if err == io.EOF && n == 0 && a.last == 0 {
			return m, nil // streams may end without saying so
		}
		return m, fmt.Errorf("damaged: it ends at byte %d, where a message should begin: %w", at, err)
	}
	size := int64(binary.LittleEndian.Uint32(head[4:]))
	switch {
	case string(head[:4]) != arrowFrame:
		return m, fmt.Errorf("damaged: no message begins at byte %d; files of before Arrow 0.15 are not read", at)
	case size == 0 && a.last == 0 && at+8 < a.os.Size():
		return m, fmt.Errorf("%d bytes follow the end of the stream at byte %d; write what follows as a file of "+
			"its own", a.os.Size()-at-8, at)
	case size == 0:
		return m, nil
	case size > arrowMetaMax || size > a.os.Size()-at-8:
		return m, fmt.Errorf("damaged: the message at byte %d has a description of %d bytes", at, size)
	}
	meta := make([]byte, size)
	if _, err := a.os.ReadAt(meta, at+8); err != nil && err != io.EOF {
		return m, err
	}
	t := fb.Table{Bytes: meta, Pos: fb.GetUOffsetT(meta)}
	m = arrowMessage{at: at, size: 8 + size, kind: t.GetByteSlot(6, 0)}
	body := t.GetInt64Slot(10, 0)
	if m.size += body; body < 0 || body > a.os.Size()-at-8-size {
		return m, fmt.Errorf("damaged: the message at byte %d has a body of %d bytes, and %d follow it", at, body,
			a.os.Size()-at-8-size)
	}
	if err := (arrowVerify{}).message(t, m.kind); err != nil {
		return m, fmt.Errorf("the message at byte %d: %w", at, err)
	}
	if m.kind == arrowBatch {
		var batch fb.Table
		t.Union(&batch, fb.UOffsetT(t.Offset(8)))
		m.rows = batch.GetInt64Slot(4, 0)
		return m, m.checkRows(&batch)
	}
	return m, nil
}

// walk finds the messages of a file. The description of each is read, no body is.
func (a *arrowFile) walk() error {
	rows := int64(0)
	for at := a.head.at + a.head.size; ; {
		m, err := a.message(at)
		if err != nil {
			return err
		}
		if m.kind == 0 {
			return nil
		}
		at += m.size
		switch {
		case m.kind == arrowDictionary:
			a.shared = append(a.shared, m)
		case m.kind != arrowBatch:
		case m.size > rowGroupsBytesMax:
			return fmt.Errorf("the record batch at byte %d has %d bytes, over the limit of %d; write the file "+
				"with smaller ones", m.at, m.size, rowGroupsBytesMax)
		case m.rows > 0:
			rows += m.rows
			a.batches, a.ends = append(a.batches, m), append(a.ends, rows)
		}
	}
}

// arrowRowsMax is how many rows a record batch has at most: decoding gives up at more.
const arrowRowsMax = rowGroupsBytesMax / arrowRowBytes

// checkRows holds the rows that a record batch announces to what can be decoded, and to the length of
// its first array, which is the first column's.
func (m *arrowMessage) checkRows(batch *fb.Table) error {
	switch {
	case m.rows < 0:
		return fmt.Errorf("damaged: the record batch at byte %d has %d rows", m.at, m.rows)
	case m.rows > arrowRowsMax:
		return fmt.Errorf("the record batch at byte %d has %d rows, over the limit of %d; write the file with "+
			"smaller ones", m.at, m.rows, arrowRowsMax)
	}
	at, n, err := arrowVerify{}.list(batch, 6, 16)
	if err != nil || n == 0 {
		return err
	}
	if first := batch.GetInt64(at); first != m.rows {
		return fmt.Errorf("damaged: the record batch at byte %d has %d rows, and a column of %d", m.at, m.rows, first)
	}
	return nil
}

// section reads a message.
func (a *arrowFile) section(m arrowMessage) io.Reader { return io.NewSectionReader(a.os, m.at, m.size) }

// rows decodes a record batch into one JSON object a row: schema and dictionaries in front make it a stream.
func (a *arrowFile) rows(k int) (out [][]byte, err error) {
	b := a.batches[k]
	parts := []io.Reader{a.section(a.head)}
	for _, d := range a.shared {
		if d.at < b.at {
			parts = append(parts, a.section(d))
		}
	}
	r, err := ipc.NewReader(io.MultiReader(append(parts, a.section(b))...), ipc.WithAllocator(newBounded()))
	if err != nil {
		return nil, err
	}
	defer r.Release()
	if !r.Next() {
		return nil, errors.Join(errors.New("damaged: it cannot be decoded"), r.Err())
	}
	rec := r.Record()
	if rec.NumRows() != b.rows {
		return nil, fmt.Errorf("damaged: it has %d rows, and says %d", rec.NumRows(), b.rows)
	}
	total := 0
	for i := range int(rec.NumRows()) {
		w := &rowWriter{}
		w.arrowRow(rec, i)
		if total += w.out.Len() + arrowRowBytes; total > rowGroupsBytesMax {
			return nil, fmt.Errorf("it decodes to over %d bytes", rowGroupsBytesMax)
		}
		out = append(out, w.out.Bytes())
	}
	return out, nil
}

// arrowRowBytes is what a row takes beside its content.
const arrowRowBytes = 64

// Sizes implements dataset.Sized, of rows as they are written here: as those of Parquet, of files that
// stay in memory once they are read.
func (a *arrowFile) Sizes(from int64, out []int64) error {
	if a.os.Size() > parquetSizedMax {
		return dataset.ErrNoSizes
	}
	for k := range out {
		b, _, err := a.Record(from + int64(k))
		var bad *dataset.BadSample
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		out[k] = int64(len(b))
	}
	return nil
}

// ArrowTexts writes a file of the columns "text" and "metadata" (JSON).
type ArrowTexts struct {
	w   *ipc.FileWriter
	b   *array.RecordBuilder
	n   int64 // bytes in the builder
	err error
}

// arrowBatchBytes is about how large a record batch is.
const arrowBatchBytes = 1 << 20

// NewArrowTexts begins a file; what is wrong with w shows in Add or Close.
func NewArrowTexts(w io.Writer) *ArrowTexts {
	schema := arrow.NewSchema([]arrow.Field{{Name: "text", Type: arrow.BinaryTypes.String},
		{Name: "metadata", Type: arrow.BinaryTypes.String}}, nil)
	out := &ArrowTexts{b: array.NewRecordBuilder(memory.NewGoAllocator(), schema)}
	out.w, out.err = ipc.NewFileWriter(&placed{w: w}, ipc.WithSchema(schema), ipc.WithZstd(),
		ipc.WithAllocator(memory.NewGoAllocator()))
	return out
}

// Add puts a row behind the others.
func (a *ArrowTexts) Add(text, metadata string) error {
	if a.err != nil {
		return a.err
	}
	a.b.Field(0).(*array.StringBuilder).Append(text)
	a.b.Field(1).(*array.StringBuilder).Append(metadata)
	if a.n += int64(len(text) + len(metadata)); a.n >= arrowBatchBytes {
		return a.flush()
	}
	return nil
}

// flush writes what is held as a record batch.
func (a *ArrowTexts) flush() error {
	rec := a.b.NewRecord()
	defer rec.Release()
	a.n = 0
	return a.w.Write(rec)
}

// Close ends the file.
func (a *ArrowTexts) Close() error {
	if a.err != nil {
		return a.err
	}
	defer a.b.Release()
	return errors.Join(a.flush(), a.w.Close())
}

// placed is a writer that knows where it is, which is all that a file of Arrow seeks for.
type placed struct {
	w io.Writer
	n int64
}

// Write implements io.Writer.
func (p *placed) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.n += int64(n)
	return n, err
}

// Seek implements io.Seeker as far as it goes.
func (p *placed) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		return 0, errors.New("what is written cannot be gone back in")
	}
	return p.n, nil
}

// bounded is an allocator that gives no more than a row group may have: the sizes in damaged files are of any size.
type bounded struct {
	memory.Allocator
	left int
}

func newBounded() *bounded { return &bounded{memory.NewGoAllocator(), 2 * rowGroupsBytesMax} }

// take counts bytes, and panics where there are too many: the library knows no errors there, and guard makes one of it.
func (b *bounded) take(n int) {
	if b.left -= n; n < 0 || b.left < 0 {
		panic(fmt.Sprintf("it expands to over %d bytes", 2*rowGroupsBytesMax))
	}
}

// Allocate implements memory.Allocator.
func (b *bounded) Allocate(size int) []byte {
	b.take(size)
	return b.Allocator.Allocate(size)
}

// Reallocate implements memory.Allocator.
func (b *bounded) Reallocate(size int, old []byte) []byte {
	if size > len(old) {
		b.take(size - len(old))
	}
	return b.Allocator.Reallocate(size, old)
}
