package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/pierrec/lz4/v4"
)

// The Parquet library loses the content of pages that LZ4 makes less than three times smaller, and asks for ever
// more memory where a block is damaged. So columns of LZ4 are expanded before it sees them: their pages lie
// behind the end of the file, in one without a name, and a footer there says that they are not compressed.

// overlay is a file with more content behind its end.
type overlay struct {
	file io.ReaderAt
	size int64 // of file
	end  int64 // of all
	more *os.File
}

// ReadAt implements io.ReaderAt.
func (o *overlay) ReadAt(b []byte, at int64) (n int, err error) {
	if at < o.size {
		n, err = o.file.ReadAt(b[:min(int64(len(b)), o.size-at)], at)
		if n == len(b) || err != nil && err != io.EOF {
			return n, err
		}
	}
	k, err := o.more.ReadAt(b[n:], max(0, at-o.size))
	return n + k, err
}

// put writes behind the end.
func (o *overlay) put(b []byte) error {
	_, err := o.more.WriteAt(b, o.end-o.size)
	o.end += int64(len(b))
	return err
}

// mended says whether a column of row group k is read by way of an overlay: it is compressed with LZ4, or its
// booleans are coded as runs.
func (p *parquetFile) mended(k, column int) bool {
	m := &p.file.Metadata().RowGroups[k].Columns[column].MetaData
	return p.reads(column) && (isLZ4(m.Codec) || hasRuns(m))
}

// reads says whether a column's values are read.
func (p *parquetFile) reads(column int) bool { return p.only < 0 || p.only == column }

func isLZ4(c format.CompressionCodec) bool { return c == format.Lz4 || c == format.Lz4Raw }

// withOverlay calls use with a row group whose columns that want it are written out; it lasts as long as use runs.
func (p *parquetFile) withOverlay(k int, use func(parquet.RowGroup) error) (err error) {
	more, err := os.CreateTemp("", "lfactor-parquet-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, more.Close()) }()
	if err := os.Remove(more.Name()); err != nil { // it lives as long as it is open
		return err
	}
	x := &overlay{file: p.os, size: p.os.Size(), end: p.os.Size(), more: more}
	meta := *p.file.Metadata()
	g := meta.RowGroups[k]
	g.Ordinal, g.Columns = 0, slices.Clone(g.Columns)
	meta.RowGroups = thrift.Slice[format.RowGroup]{g}
	for i := range g.Columns {
		c := &g.Columns[i]
		if !p.mended(k, i) {
			continue
		}
		pages, dictionary, err := p.plainPages(c, i)
		if err != nil {
			return fmt.Errorf("column %q: %w", c.MetaData.PathInSchema[0], err)
		}
		relocate(c, x.end, int64(len(pages)), dictionary)
		if err := x.put(pages); err != nil {
			return err
		}
	}
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), &meta)
	if err != nil {
		return err
	}
	footer = binary.LittleEndian.AppendUint32(footer, uint32(len(footer)))
	if err := x.put(append(footer, "PAR1"...)); err != nil {
		return err
	}
	f, err := parquet.OpenFile(x, x.end, parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return err
	}
	return use(f.RowGroups()[0])
}

// relocate says of a chunk that it lies at a place and is not compressed, the first so many bytes of it a dictionary.
func relocate(c *format.ColumnChunk, at, size, dictionary int64) {
	m := &c.MetaData
	m.Codec = format.Uncompressed
	m.TotalCompressedSize, m.TotalUncompressedSize = size, size
	if m.DictionaryPageOffset = 0; dictionary > 0 {
		m.DictionaryPageOffset = at
	}
	m.DataPageOffset, m.IndexPageOffset, m.BloomFilterOffset = at+dictionary, 0, 0
	c.OffsetIndexOffset, c.OffsetIndexLength, c.ColumnIndexOffset, c.ColumnIndexLength = 0, 0, 0, 0
}

// plainPages returns the pages of a column's chunk as they would be without compression and runs of booleans,
// and how many bytes of them are a dictionary.
func (p *parquetFile) plainPages(c *format.ColumnChunk, column int) (out []byte, dictionary int64, err error) {
	m := &c.MetaData
	at := m.DataPageOffset
	if m.DictionaryPageOffset > 0 {
		at = min(at, m.DictionaryPageOffset)
	}
	if at < 0 || m.TotalCompressedSize < 0 || m.TotalCompressedSize > p.os.Size()-at {
		return nil, 0, errors.New("damaged: it lies outside of the file")
	}
	in := make([]byte, m.TotalCompressedSize)
	if _, err := p.os.ReadAt(in, at); err != nil {
		return nil, 0, err
	}
	protocol := new(thrift.CompactProtocol)
	for n := 0; len(in) > 0; n++ {
		var h format.PageHeader
		r := protocol.NewReaderFromBytes(in)
		if err := thrift.NewDecoder(r).Decode(&h); err != nil {
			return nil, 0, fmt.Errorf("damaged: page %d: %w", n, err)
		}
		in = in[r.BytesRead():]
		if h.CompressedPageSize < 0 || int(h.CompressedPageSize) > len(in) {
			return nil, 0, fmt.Errorf("damaged: page %d ends outside of the column", n)
		}
		page, err := plainPage(&h, in[:h.CompressedPageSize], m.Codec)
		if err != nil {
			return nil, 0, fmt.Errorf("damaged: page %d: %w", n, err)
		}
		in = in[h.CompressedPageSize:]
		if hasRuns(m) {
			if page, err = plainBooleans(&h, page, levelsOf(p.file.Schema(), column)); err != nil {
				return nil, 0, fmt.Errorf("damaged: page %d: %w", n, err)
			}
		}
		h.CompressedPageSize, h.CRC = int32(len(page)), 0
		head, err := thrift.Marshal(protocol, &h)
		if err != nil {
			return nil, 0, err
		}
		if out = append(append(out, head...), page...); len(out) > rowGroupsBytesMax {
			return nil, 0, fmt.Errorf("it expands to over %d bytes", rowGroupsBytesMax)
		}
		if h.Type == format.DictionaryPage {
			dictionary = int64(len(out))
		}
	}
	return out, dictionary, nil
}

// lz4RatioMax is the most bytes that a byte of LZ4 stands for.
const lz4RatioMax = 255

// plainPage expands a page, and says so in its header. Levels in front of the values of a page of version 2
// are never compressed.
func plainPage(h *format.PageHeader, b []byte, codec format.CompressionCodec) ([]byte, error) {
	if h.CRC != 0 && uint32(h.CRC) != crc32.ChecksumIEEE(b) {
		return nil, errors.New("its checksum is another one")
	}
	levels := 0
	if v2 := &h.DataPageHeaderV2; v2.Valid {
		if v2.V.IsCompressed.Valid && !v2.V.IsCompressed.V {
			return b, nil
		}
		levels = int(v2.V.RepetitionLevelsByteLength) + int(v2.V.DefinitionLevelsByteLength)
		v2.V.IsCompressed.Valid, v2.V.IsCompressed.V = true, false
	}
	size := int(h.UncompressedPageSize)
	if levels < 0 || levels > len(b) || size < levels ||
		isLZ4(codec) && size-levels > lz4RatioMax*(len(b)-levels) || size > rowGroupsBytesMax {
		return nil, fmt.Errorf("%d bytes cannot be %d ones", len(b), size)
	}
	if !isLZ4(codec) && len(b) == levels { // nulls alone
		return b, nil
	}
	if !isLZ4(codec) {
		body, err := parquet.LookupCompressionCodec(codec).Decode(make([]byte, 0, size-levels), b[levels:])
		if err == nil && len(body) != size-levels {
			err = fmt.Errorf("it expands to %d bytes, not the %d that it announces", len(body), size-levels)
		}
		return append(slices.Clone(b[:levels]), body...), err
	}
	out := make([]byte, size)
	copy(out, b[:levels])
	body := out[levels:]
	if codec == format.Lz4 && hadoopLZ4(body, b[levels:]) {
		return out, nil
	}
	n, err := lz4.UncompressBlock(b[levels:], body)
	if err != nil || n != len(body) {
		return nil, fmt.Errorf("its LZ4 data do not expand to the %d bytes that it announces", len(body))
	}
	return out, nil
}

// hadoopLZ4 expands blocks as Hadoop writes them, each behind its sizes, and says whether they are such: files
// that name the old codec have these or a bare block.
func hadoopLZ4(out, in []byte) bool {
	for len(in) >= 8 {
		size, packed := binary.BigEndian.Uint32(in), binary.BigEndian.Uint32(in[4:])
		if in = in[8:]; int64(packed) > int64(len(in)) || int64(size) > int64(len(out)) {
			return false
		}
		if n, err := lz4.UncompressBlock(in[:packed], out[:size]); err != nil || n != int(size) {
			return false
		}
		out, in = out[size:], in[packed:]
	}
	return len(in) == 0 && len(out) == 0
}
