package format

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/topology/machine"
)

// Megatron-LM's indexed data: PREFIX.bin holds token ids one after the other, PREFIX.idx the lengths and
// places of sequences and which sequences make a document. Layout of the index, little endian: "MMIDIDX\0\0",
// version 1 (uint64), type of ids (uint8), sequences and document bounds (uint64 each), lengths (int32 each),
// byte offsets (int64 each), document bounds (int64 each, from 0 to the number of sequences), and, for multimodal data,
// a mode (int8) each. Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py.
var _ = dataset.Register(dataset.Format{
	Name: "megatron",
	Doc:  "Megatron-LM's token ids, PREFIX.bin and PREFIX.idx; the path is the prefix",
	Kind: dataset.KindTokens,
	Match: func(path string, _ []byte) bool {
		if HasSuffix(path, shardSuffixes...) { // an index beside a shard is Energon's
			return false
		}
		_, err := os.Stat(indexedPrefix(path) + ".idx")
		return err == nil
	},
	Open: func(path string, o dataset.Options) (dataset.Source, error) {
		return openIndexed(indexedPrefix(path), o)
	},
	Write: func(dir string, docs []dataset.Document) (path string, o dataset.Options, err error) {
		path = filepath.Join(dir, "docs")
		w, err := NewIndexedWriter(path, math.MaxUint16)
		if err != nil {
			return path, o, err
		}
		for _, d := range docs {
			err = errors.Join(err, w.Add(d.Tokens))
			w.EndDocument()
		}
		return path, o, errors.Join(err, w.Close())
	},
})

func indexedPrefix(path string) string {
	return strings.TrimSuffix(strings.TrimSuffix(path, ".idx"), ".bin")
}

const (
	indexedMagic  = "MMIDIDX\x00\x00"
	indexedHeader = int64(len(indexedMagic) + 8 + 1 + 8 + 8)
)

// idType is how an id is stored.
type idType struct {
	code byte
	size int64
	get  func(b []byte) int64
}

// idTypes are the integer types of ids; the format's float types (6 and 7) hold no ids.
var idTypes = map[byte]idType{
	1: {1, 1, func(b []byte) int64 { return int64(b[0]) }},
	2: {2, 1, func(b []byte) int64 { return int64(int8(b[0])) }},
	3: {3, 2, func(b []byte) int64 { return int64(int16(binary.LittleEndian.Uint16(b))) }},
	4: {4, 4, func(b []byte) int64 { return int64(int32(binary.LittleEndian.Uint32(b))) }},
	5: {5, 8, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) }},
	8: {8, 2, func(b []byte) int64 { return int64(binary.LittleEndian.Uint16(b)) }},
}

// indexed is an open pair of files. It reads what it needs of the index for each document, so it takes no memory.
type indexed struct {
	prefix   string
	idx, bin *os.File
	header   indexedSizes
	idxSize  int64
	binSize  int64
	limit    int64 // bytes of a document
	print    string
}

// indexedSizes is the index's header.
type indexedSizes struct {
	typ       idType
	sequences int64
	bounds    int64 // documents and one
}

// openIndexed opens a pair of .bin and .idx files. Both are checked to be files first.
func openIndexed(prefix string, o dataset.Options) (*indexed, error) {
	x := &indexed{prefix: prefix, limit: o.Limit()}
	err := OnDisk(prefix, "Megatron's .bin/.idx")
	if err != nil {
		return nil, err
	}
	for _, end := range []string{".idx", ".bin"} {
		if info, err := os.Stat(prefix + end); err != nil {
			return nil, err
		} else if !info.Mode().IsRegular() { // opening a pipe would wait for a writer
			return nil, fmt.Errorf("%s%s is not a file", prefix, end)
		}
	}
	if x.idx, err = os.Open(prefix + ".idx"); err != nil {
		return nil, err
	}
	if x.bin, err = os.Open(prefix + ".bin"); err != nil {
		return nil, errors.Join(err, x.idx.Close())
	}
	if err := x.load(o.Full); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

// load reads the header and takes the fingerprint of both files.
func (x *indexed) load(full bool) error {
	idx, err := x.idx.Stat()
	if err != nil {
		return err
	}
	bin, err := x.bin.Stat()
	if err != nil {
		return err
	}
	x.idxSize, x.binSize = idx.Size(), bin.Size()
	if x.header, err = readSizes(x.idx, x.idxSize); err != nil {
		return fmt.Errorf("%s.idx: %w", x.prefix, err)
	}
	a, err := FingerprintFile(x.idx, x.idxSize, full)
	if err != nil {
		return err
	}
	b, err := FingerprintFile(x.bin, x.binSize, full)
	x.print = HashOf("megatron", a, b)
	return err
}

// readSizes reads and checks the header: the counts must fit the file, so that nothing is allocated on a lie.
func readSizes(r io.ReaderAt, size int64) (s indexedSizes, err error) {
	h := make([]byte, indexedHeader)
	if _, err := r.ReadAt(h, 0); err != nil || string(h[:len(indexedMagic)]) != indexedMagic {
		return s, errors.New("it does not begin with MMIDIDX: it is no index of Megatron-LM (version 1)")
	}
	h = h[len(indexedMagic):]
	if v := binary.LittleEndian.Uint64(h); v != 1 {
		return s, fmt.Errorf("version %d is not supported; only 1 is", v)
	}
	typ, ok := idTypes[h[8]]
	if !ok {
		return s, fmt.Errorf("data type %d holds no token ids", h[8])
	}
	sequences, bounds := binary.LittleEndian.Uint64(h[9:]), binary.LittleEndian.Uint64(h[17:])
	limit := uint64(size) // counts above it cannot be, and below it the sum cannot overflow
	if sequences > limit || bounds > limit || bounds == 0 {
		return s, fmt.Errorf("%d sequences and %d document bounds do not fit a file of %d bytes", sequences,
			bounds, size)
	}
	want := indexedHeader + 12*int64(sequences) + 8*int64(bounds)
	if size != want && size != want+int64(sequences) {
		return s, fmt.Errorf("%d sequences and %d document bounds take %d bytes; the file has %d", sequences,
			bounds, want, size)
	}
	return indexedSizes{typ, int64(sequences), int64(bounds)}, nil
}

func (x *indexed) Name() string        { return x.prefix }
func (x *indexed) Kind() dataset.Kind  { return dataset.KindTokens }
func (x *indexed) Len() int64          { return x.header.bounds - 1 }
func (x *indexed) Fingerprint() string { return x.print }
func (x *indexed) Close() error        { return errors.Join(x.idx.Close(), x.bin.Close()) }

// Read joins the sequences of document i.
func (x *indexed) Read(i int64) (dataset.Document, error) { return x.ReadPart(i, 0, math.MaxInt64) }

// ReadPart implements dataset.Parted.
func (x *indexed) ReadPart(i, from, to int64) (dataset.Document, error) {
	d := dataset.Document{Place: dataset.Place{File: x.prefix + ".bin"}}
	lengths, offsets, err := x.sequences(i)
	var bad *dataset.BadSample
	if errors.As(err, &bad) {
		bad.Place = d.Place
	}
	if err != nil || len(lengths) == 0 {
		return d, err
	}
	d.Place.Offset = offsets[0]
	for k, n := range lengths {
		lo, hi := min(max(from, 0), n), min(max(to, 0), n)
		from, to = from-n, to-n
		if lo == hi {
			continue
		}
		at, size := offsets[k]+lo*x.header.typ.size, (hi-lo)*x.header.typ.size
		b := make([]byte, size)
		if _, err := x.bin.ReadAt(b, at); err != nil {
			return d, err
		}
		for ; len(b) > 0; b = b[x.header.typ.size:] {
			id := x.header.typ.get(b)
			if id < 0 || id > math.MaxInt32 {
				return d, &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf(
					"document %d: id %d at byte %d is not a token id", i, id, at+size-int64(len(b)))}
			}
			d.Tokens = append(d.Tokens, int32(id))
		}
	}
	return d, nil
}

// sequences returns the lengths, in ids, and the places, in bytes, of the sequences of document i. They lie
// within the file, and are not more than a document may have.
func (x *indexed) sequences(i int64) (lengths, offsets []int64, err error) {
	bounds, err := x.ints(indexedHeader+12*x.header.sequences+8*i, 2, 8)
	if err != nil {
		return nil, nil, err
	}
	bad := func(format string, args ...any) error {
		return &dataset.BadSample{Reason: fmt.Sprintf("document %d: ", i) + fmt.Sprintf(format, args...)}
	}
	from, to := bounds[0], bounds[1]
	if from < 0 || to < from || to > x.header.sequences {
		return nil, nil, bad("it is said to be sequences %d to %d of %d", from, to, x.header.sequences)
	}
	if to == from {
		return nil, nil, nil
	}
	if lengths, err = x.ints(indexedHeader+4*from, to-from, 4); err != nil {
		return nil, nil, err
	}
	if offsets, err = x.ints(indexedHeader+4*x.header.sequences+8*from, to-from, 8); err != nil {
		return nil, nil, err
	}
	room := x.limit
	for k, n := range lengths {
		size := n * x.header.typ.size
		if room -= size; room < 0 {
			return nil, nil, bad("its ids have over %d bytes", x.limit)
		}
		if n < 0 || offsets[k] < 0 || size > x.binSize-offsets[k] {
			return nil, nil, bad("a sequence of %d ids at byte %d is not within the %d bytes of the file", n,
				offsets[k], x.binSize)
		}
	}
	return lengths, offsets, nil
}

// Sizes implements dataset.Sized. A document whose place in the files is wrong, or that is too large, has none.
func (x *indexed) Sizes(from int64, out []int64) error {
	bounds, err := x.ints(indexedHeader+12*x.header.sequences+8*from, int64(len(out))+1, 8)
	if err != nil {
		return err
	}
	lo, hi := bounds[0], bounds[len(out)]
	for _, b := range bounds {
		lo, hi = min(lo, b), max(hi, b)
	}
	var lengths, offsets []int64
	if known := lo >= 0 && hi <= x.header.sequences && hi-lo <= sizesAtOnce; known {
		if lengths, err = x.ints(indexedHeader+4*lo, hi-lo, 4); err != nil {
			return err
		}
		if offsets, err = x.ints(indexedHeader+4*x.header.sequences+8*lo, hi-lo, 8); err != nil {
			return err
		}
	}
	for k := range out {
		out[k] = 0
		a, b := bounds[k]-lo, bounds[k+1]-lo
		if lengths == nil { // the index is damaged, or a document has very many sequences
			if one, _, err := x.sequences(from + int64(k)); err == nil {
				out[k] = total(one)
			}
		} else if a <= b {
			if room := x.fits(lengths[a:b], offsets[a:b]); room {
				out[k] = total(lengths[a:b])
			}
		}
	}
	return nil
}

// sizesAtOnce bounds the sequences whose lengths are read at once: 1 MiB of the index.
const sizesAtOnce = 1 << 16

// fits says whether sequences lie within the file, and are not more than a document may have.
func (x *indexed) fits(lengths, offsets []int64) bool {
	room := x.limit
	for k, n := range lengths {
		size := n * x.header.typ.size
		if room -= size; n < 0 || room < 0 || offsets[k] < 0 || size > x.binSize-offsets[k] {
			return false
		}
	}
	return true
}

func total(lengths []int64) (n int64) {
	for _, l := range lengths {
		n += l
	}
	return n
}

// ints reads n integers of the index.
func (x *indexed) ints(at, n, size int64) ([]int64, error) {
	b := make([]byte, n*size)
	if _, err := x.idx.ReadAt(b, at); err != nil {
		return nil, fmt.Errorf("%s.idx: %w", x.prefix, err)
	}
	get := idTypes[map[int64]byte{4: 4, 8: 5}[size]].get
	out := make([]int64, n)
	for i := range out {
		out[i] = get(b[int64(i)*size:])
	}
	return out, nil
}

// IndexedWriter writes Megatron-LM's indexed data. Lengths are kept in memory, 4 bytes a sequence, until Close.
type IndexedWriter struct {
	prefix  string
	typ     idType
	file    *os.File
	out     *bufio.Writer
	lengths []int32
	bounds  []int64
}

// NewIndexedWriter creates PREFIX.bin, and PREFIX.idx when it is closed. Ids are stored in 16 bits where
// vocab, the number of different ids, is below 65,500, else in 32, as Megatron-LM chooses.
func NewIndexedWriter(prefix string, vocab int) (*IndexedWriter, error) {
	f, err := os.OpenFile(prefix+".bin", os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if machine.LockFile(f) {
		return nil, errors.Join(fmt.Errorf("%s.bin is being written by another process; wait for it, or name another "+
			"output", prefix), f.Close())
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w := &IndexedWriter{prefix: prefix, typ: idTypes[4], file: f, out: bufio.NewWriterSize(f, 1<<16),
		bounds: []int64{0}}
	if vocab < 65500 {
		w.typ = idTypes[8]
	}
	return w, nil
}

// Add writes a sequence of the document under way.
func (w *IndexedWriter) Add(ids []int32) error {
	var b []byte
	for _, id := range ids {
		if w.typ.code == 8 {
			if id < 0 || id > math.MaxUint16 {
				return fmt.Errorf("write %s.bin: id %d does not fit 16 bits", w.prefix, id)
			}
			b = binary.LittleEndian.AppendUint16(b, uint16(id))
		} else {
			b = binary.LittleEndian.AppendUint32(b, uint32(id))
		}
	}
	w.lengths = append(w.lengths, int32(len(ids)))
	if _, err := w.out.Write(b); err != nil {
		return fmt.Errorf("write %s.bin: %w", w.prefix, err)
	}
	return nil
}

// EndDocument makes a document of the sequences since the last one.
func (w *IndexedWriter) EndDocument() { w.bounds = append(w.bounds, int64(len(w.lengths))) }

// Abandon closes the data and writes no index, so that nobody takes what is there for a whole data set.
func (w *IndexedWriter) Abandon() error { return errors.Join(w.out.Flush(), w.file.Close()) }

// Close writes the index, under another name until it is whole. The data cannot be read before.
func (w *IndexedWriter) Close() error {
	err := errors.Join(w.out.Flush(), w.file.Close())
	if err == nil {
		err = w.writeIndex(w.prefix + ".idx.tmp")
	}
	if err == nil {
		err = os.Rename(w.prefix+".idx.tmp", w.prefix+".idx")
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", w.prefix, err)
	}
	return nil
}

// writeIndex writes the .idx file: header, lengths, offsets in bytes, and the bounds of documents,
// as Megatron-LM reads them.
func (w *IndexedWriter) writeIndex(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(f, 1<<16)
	head := binary.LittleEndian.AppendUint64([]byte(indexedMagic), 1)
	head = append(head, w.typ.code)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.lengths)))
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.bounds)))
	_, err = out.Write(head)
	at, offsets := int64(0), make([]int64, len(w.lengths))
	for i, n := range w.lengths {
		offsets[i] = at
		at += int64(n) * w.typ.size
	}
	for _, part := range []any{w.lengths, offsets, w.bounds} {
		err = errors.Join(err, binary.Write(out, binary.LittleEndian, part))
	}
	return errors.Join(err, out.Flush(), f.Close())
}
