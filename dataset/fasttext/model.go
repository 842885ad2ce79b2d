package fasttext

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// The numbers by which files name kinds of models and losses.
const (
	magic      = 793712314
	supervised = 3
	lossHS     = 1
	lossNS     = 2
	lossOVA    = 4
)

// Bounds of what a file may ask for, in numbers of entries. Sizes are held to the size of the file too.
const (
	dimMax    = 1 << 16
	wordBytes = 1 << 16
)

// Model is a classifier. It is not changed by use, and serves several goroutines.
type Model struct {
	dim, ngrams, loss, bucket, minn, maxn int
	words                                 map[string]int32
	subwords                              [][]int32 // of each word; nil where the model has none
	nwords                                int
	labels                                []string
	counts                                []int64
	pruned                                map[int32]int32
	isPruned                              bool
	input, output                         matrix
	tree                                  []node
}

// matrix is rows of numbers, which may be quantized.
type matrix interface {
	size() (rows, columns int64)
	addTo(x []float32, row int32)
	dot(x []float32, row int32) float32
}

// reader reads a file's values and holds sizes to what is left of it.
type reader struct {
	in   *bufio.Reader
	left int64
	err  error
}

// Open reads a classifier. A file of another kind, a damaged one, and word vectors, which classify nothing,
// are errors that say so.
func Open(path string) (*Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m, err := read(&reader{in: bufio.NewReaderSize(f, 1<<20), left: info.Size()})
	if err != nil {
		return nil, fmt.Errorf("fastText classifier %s: %w", path, err)
	}
	return m, nil
}

// read reads a whole model.
func read(r *reader) (*Model, error) {
	if r.int() != magic {
		return nil, fmt.Errorf("it is not a fastText model: it does not begin with fastText's number; " +
			"name a .bin or .ftz that fastText has written")
	}
	if v := r.int(); v != 12 && v != 11 {
		return nil, fmt.Errorf("it is of version %d of fastText's files; 11 and 12 are read", v)
	} else if err := r.err; err != nil {
		return nil, err
	} else {
		return readVersion(r, v)
	}
}

// readVersion reads what follows the version.
func readVersion(r *reader, version int) (*Model, error) {
	m := &Model{}
	var kind int
	for _, p := range []*int{&m.dim, nil, nil, nil, nil, &m.ngrams, &m.loss, &kind, &m.bucket, &m.minn, &m.maxn, nil} {
		v := r.int()
		if p != nil {
			*p = v
		}
	}
	r.skip(8)
	switch {
	case r.err != nil:
		return nil, r.err
	case kind != supervised:
		return nil, fmt.Errorf("it has word vectors and no labels; train it with `fasttext supervised`")
	case m.loss < lossHS || m.loss > lossOVA:
		return nil, fmt.Errorf("its loss is %d, which fastText does not have", m.loss)
	case m.dim < 1 || m.dim > dimMax || m.bucket < 0 || m.minn < 0 || m.maxn < 0:
		return nil, fmt.Errorf("its dim %d, bucket %d, minn %d or maxn %d is none", m.dim, m.bucket, m.minn, m.maxn)
	case m.bucket == 0 && (m.maxn > 0 || m.ngrams > 1):
		return nil, fmt.Errorf("it has n-grams and no bucket for them")
	}
	if version == 11 {
		m.maxn = 0 // as fastText does
	}
	if err := m.readWords(r); err != nil {
		return nil, err
	}
	return m, m.readMatrices(r)
}

// readWords reads the dictionary.
func (m *Model) readWords(r *reader) error {
	size, nwords, nlabels := r.int(), r.int(), r.int()
	r.skip(8)
	pruned := r.long()
	if r.err != nil {
		return r.err
	}
	const entryBytes = 10 // an empty word's
	if nwords < 0 || nlabels < 1 || size != nwords+nlabels || int64(size)*entryBytes > r.left {
		return fmt.Errorf("its dictionary of %d words and %d labels does not fit its size", nwords, nlabels)
	}
	if pruned > r.left/8 {
		return fmt.Errorf("it says to have %d n-grams left, more than the file holds", pruned)
	}
	m.nwords, m.words = nwords, make(map[string]int32, size)
	names := make([]string, 0, size)
	for i := range size {
		w := r.word()
		count, label := r.long(), r.byte() == 1
		if r.err != nil {
			return r.err
		}
		if label != (i >= nwords) {
			return fmt.Errorf("entry %d of its dictionary, %q, is among the wrong ones", i, w)
		}
		if m.words[w] = int32(i); label {
			m.labels, m.counts = append(m.labels, w), append(m.counts, count)
		}
		names = append(names, w)
	}
	m.isPruned, m.pruned = pruned >= 0, map[int32]int32{}
	for range pruned {
		k, v := r.int(), r.int()
		m.pruned[int32(k)] = int32(v)
	}
	if m.maxn > 0 {
		m.subwords = make([][]int32, nwords)
		for i, w := range names[:nwords] {
			m.subwords[i] = append(m.subwords[i], int32(i))
			if w != eos {
				m.subwords[i] = m.letters(bow+w+eow, m.subwords[i])
			}
		}
	}
	return r.err
}

// readMatrices reads the weights and checks their shapes.
func (m *Model) readMatrices(r *reader) (err error) {
	quantized := r.byte() == 1
	if m.input, err = r.matrix(quantized); err != nil {
		return fmt.Errorf("its input: %w", err)
	}
	if !quantized && m.isPruned {
		return fmt.Errorf("it is pruned and not quantized, as models of an old fastText are; write it anew")
	}
	out := r.byte() == 1
	if m.output, err = r.matrix(quantized && out); err != nil {
		return fmt.Errorf("its output: %w", err)
	}
	if r.left > 0 {
		return fmt.Errorf("%d bytes follow its end", r.left)
	}
	rows, columns := m.input.size()
	want := int64(m.nwords + m.bucket)
	if m.isPruned {
		want = int64(m.nwords + len(m.pruned))
	}
	if columns != int64(m.dim) || rows != want {
		return fmt.Errorf("its input is %d × %d; its words and n-grams want %d × %d", rows, columns, want, m.dim)
	}
	for k, v := range m.pruned {
		if v < 0 || int64(v) >= rows-int64(m.nwords) {
			return fmt.Errorf("its n-gram %d leads to row %d, which it does not have", k, v)
		}
	}
	rows, columns = m.output.size()
	if columns != int64(m.dim) || rows != int64(len(m.labels)) {
		return fmt.Errorf("its output is %d × %d; its labels want %d × %d", rows, columns, len(m.labels), m.dim)
	}
	if m.loss == lossHS {
		m.tree = huffman(m.counts)
	}
	return nil
}

// Labels returns the names of the labels without "__label__", in the file's order.
func (m *Model) Labels() []string {
	out := make([]string, len(m.labels))
	for i, l := range m.labels {
		out[i] = strings.TrimPrefix(l, labelPrefix)
	}
	return out
}

// bytes reads n bytes, or notes that the file has less.
func (r *reader) bytes(n int64) []byte {
	if r.err != nil {
		return make([]byte, min(n, 8))
	}
	if n < 0 || n > r.left {
		r.err = fmt.Errorf("it ends early: %d bytes are wanted and %d are left; copy it again", n, r.left)
		return make([]byte, min(max(n, 0), 8))
	}
	b := make([]byte, n)
	_, r.err = io.ReadFull(r.in, b)
	r.left -= n
	return b
}

func (r *reader) skip(n int64) { r.bytes(n) }
func (r *reader) int() int     { return int(int32(binary.LittleEndian.Uint32(r.bytes(4)))) }
func (r *reader) long() int64  { return int64(binary.LittleEndian.Uint64(r.bytes(8))) }
func (r *reader) byte() byte   { return r.bytes(1)[0] }

// word reads up to a zero byte.
func (r *reader) word() string {
	var b []byte
	for r.err == nil {
		c := r.byte()
		if c == 0 {
			break
		}
		if b = append(b, c); len(b) > wordBytes {
			r.err = fmt.Errorf("a word of it is over %d bytes", wordBytes)
		}
	}
	return string(b)
}

// floats reads n numbers.
func (r *reader) floats(n int64) []float32 {
	if n < 0 || n > r.left/4 {
		r.err = fmt.Errorf("it ends early: %d numbers are wanted and %d bytes are left; copy it again", n, r.left)
		return nil
	}
	out := make([]float32, n)
	for at := int64(0); at < n && r.err == nil; {
		part := min(n-at, 1<<16)
		b := r.bytes(4 * part)
		for k := range part {
			out[at+k] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*k:]))
		}
		at += part
	}
	return out
}
