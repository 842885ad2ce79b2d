package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

// The Parquet library reads a run of equal booleans as one of them and others that are false (parquet-go v0.32,
// rle.decodeBits): with pages of version 2 other writers code booleans as such runs. So they are written out, one
// bit each, before it sees them, on the way that columns of LZ4 take.

// hasRuns says whether a chunk has booleans coded as runs, or may have.
func hasRuns(m *format.ColumnMetaData) bool {
	if m.Type != format.Boolean || !slices.Contains(m.Encoding, format.RLE) {
		return false // levels are runs too, so that nearly all columns name the encoding
	}
	if len(m.EncodingStats) == 0 {
		return true
	}
	return slices.ContainsFunc(m.EncodingStats, func(s format.PageEncodingStats) bool { return s.Encoding == format.RLE })
}

// levels are a column's greatest levels.
type levels struct{ repetition, definition int }

func levelsOf(s *parquet.Schema, column int) levels {
	leaf, _ := s.Lookup(s.Columns()[column]...) // the schema names it
	return levels{leaf.MaxRepetitionLevel, leaf.MaxDefinitionLevel}
}

// plainBooleans writes out the runs of a page that is not compressed, and says so in its header.
func plainBooleans(h *format.PageHeader, b []byte, l levels) ([]byte, error) {
	encoding, from := format.Plain, 0
	switch {
	case h.DataPageHeaderV2.Valid:
		v := &h.DataPageHeaderV2.V
		encoding, v.Encoding = v.Encoding, format.Plain
		from = int(v.RepetitionLevelsByteLength) + int(v.DefinitionLevelsByteLength)
	case h.DataPageHeader.Valid:
		v := &h.DataPageHeader.V
		encoding, v.Encoding = v.Encoding, format.Plain
		for _, top := range []int{l.repetition, l.definition} {
			if top == 0 || encoding != format.RLE {
				continue
			}
			if from+4 > len(b) {
				return nil, errors.New("its levels end outside of it")
			}
			from += 4 + int(binary.LittleEndian.Uint32(b[from:]))
		}
	}
	if encoding != format.RLE {
		return b, nil
	}
	if from < 0 || from+4 > len(b) {
		return nil, errors.New("its levels end outside of it")
	}
	runs := b[from+4:]
	if n := int64(binary.LittleEndian.Uint32(b[from:])); n > int64(len(runs)) {
		return nil, errors.New("its runs end outside of it")
	} else {
		runs = runs[:n]
	}
	bits, err := runBits(runs)
	if err != nil {
		return nil, err
	}
	out := append(slices.Clone(b[:from]), bits...)
	h.UncompressedPageSize = int32(len(out))
	return out, nil
}

// runBits writes out runs of one bit (Parquet's Encodings.md, "Run Length Encoding / Bit-Packing Hybrid").
func runBits(runs []byte) (out []byte, err error) {
	count := uint64(0)
	for len(runs) > 0 {
		head, n := binary.Uvarint(runs)
		if n <= 0 {
			return nil, errors.New("a run has no length")
		}
		runs = runs[n:]
		size := head >> 1
		if head&1 == 0 && len(runs) == 0 || head&1 == 1 && size > uint64(len(runs)) {
			return nil, errors.New("a run ends outside of it")
		}
		if head&1 == 1 { // groups of eight
			size *= 8
		}
		if count += size; size > 8*rowGroupsBytesMax || count > 8*rowGroupsBytesMax {
			return nil, fmt.Errorf("it has over %d values", 8*rowGroupsBytesMax)
		}
		at := count - size
		out = append(out, make([]byte, (count+7)/8-uint64(len(out)))...)
		for i := range size {
			bit := runs[0] & 1
			if head&1 == 1 {
				bit = runs[i/8] >> (i % 8) & 1
			}
			out[(at+i)/8] |= bit << ((at + i) % 8)
		}
		if head&1 == 1 {
			runs = runs[size/8:]
		} else {
			runs = runs[1:]
		}
	}
	return out, nil
}
