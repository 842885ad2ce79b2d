package format

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/lfactor/lfactor/dataset/store"
)

// Bounds of compressed shards, against bombs.
const (
	expandRatioMax  = 200       // bytes out for a byte in, once expandFree are out
	expandFree      = 1 << 30   // bytes that any shard may expand to
	zstdWindowMax   = 128 << 20 // bytes of memory for a zstd stream: "--long=27"
	spillBytesMax   = 16 << 30  // of all expanded shards on disk together; the oldest go first
	forwardCopySize = 64 << 10
)

// codec is a way to compress.
type codec struct {
	magic    string
	suffixes []string
	open     func(in io.Reader) (out io.Reader, end func(), err error)
}

var codecs = []codec{
	{"\x1f\x8b", []string{".gz"}, func(in io.Reader) (io.Reader, func(), error) {
		z, err := gzip.NewReader(in)
		return z, func() {}, err
	}},
	{"\x28\xb5\x2f\xfd", []string{".zst", ".zstd"}, func(in io.Reader) (io.Reader, func(), error) {
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdWindowMax))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}},
	{"BZh", []string{".bz2"}, func(in io.Reader) (io.Reader, func(), error) {
		return bzip2.NewReader(in), func() {}, nil
	}},
	{"\xfd7zXZ\x00", []string{".xz"}, func(in io.Reader) (io.Reader, func(), error) {
		in, err := xzWindow(in)
		if err != nil {
			return nil, nil, err
		}
		z, err := xz.NewReader(bufio.NewReaderSize(in, forwardCopySize))
		return z, func() {}, err
	}},
}

// headMax is longer than any codec's magic number.
const headMax = 6

// codecOf tells by the first bytes, nil where they are none's.
func codecOf(f io.ReaderAt) (*codec, error) {
	head := make([]byte, headMax)
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	for i := range codecs {
		if bytes.HasPrefix(head[:n], []byte(codecs[i].magic)) {
			return &codecs[i], nil
		}
	}
	return nil, nil
}

// xzWindow refuses an xz stream whose first block wants more memory than zstd may have.
func xzWindow(in io.Reader) (io.Reader, error) {
	head := make([]byte, 40)
	n, err := io.ReadFull(in, head)
	if err != nil && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	const lzma2, mostBits = 0x21, 30 // 2^(bits/2+12) bytes and so on: 128 MiB
	if at := bytes.Index(head[min(12, n):n], []byte{lzma2, 1}); at >= 0 && 12+at+2 < n && head[12+at+2] > mostBits {
		return nil, fmt.Errorf("its window is over %d bytes; write it with xz -6", zstdWindowMax)
	}
	return io.MultiReader(bytes.NewReader(head[:n]), in), nil
}

// streamError says that compressed data is damaged or expands too far. Reading again does not help.
type streamError struct{ reason string }

func (e *streamError) Error() string { return e.reason }

// isCompressed tells by the first bytes, whatever the name says.
func isCompressed(f io.ReaderAt) (bool, error) {
	c, err := codecOf(f)
	return c != nil, err
}

// expansion is the expanded content of a compressed file. Its errors are io.EOF, *streamError, or those of the file.
type expansion struct {
	raw   *trackedReader
	out   io.Reader
	close func()
	left  int64 // bytes it may still give
}

// trackedReader remembers the error of the file below a decompressor, which is no fault of the data.
type trackedReader struct {
	in  io.Reader
	err error
}

// Read notes errors of the underlying file, to tell them from faults of the compressed data.
func (r *trackedReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// expand opens the content of a compressed file of a size in bytes. The file is read by offset and may be shared.
func expand(f io.ReaderAt, size int64) (*expansion, error) {
	raw := &trackedReader{in: io.NewSectionReader(f, 0, size)}
	x := &expansion{raw: raw, close: func() {}, left: max(expandFree, expandRatioMax*size)}
	c, err := codecOf(f)
	if err != nil {
		return nil, err
	}
	if c == nil {
		return nil, errors.New("it is not compressed in a way that is known")
	}
	out, end, err := c.open(raw)
	if err != nil {
		x.out = failing{err}
		return x, raw.err
	}
	x.out, x.close = out, end
	return x, nil
}

// failing is a reader of nothing but an error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// Read implements io.Reader.
func (x *expansion) Read(p []byte) (int, error) {
	if x.left == 0 {
		return 0, &streamError{fmt.Sprintf("expand to over %d times their size", expandRatioMax)}
	}
	n, err := x.out.Read(p[:min(int64(len(p)), x.left)])
	x.left -= int64(n)
	switch {
	case err == nil || err == io.EOF:
		return n, err
	case x.raw.err != nil:
		return n, x.raw.err
	}
	return n, &streamError{"are damaged: " + err.Error()}
}

// Close frees the decompressor.
func (x *expansion) Close() { x.close() }

// forward is a stream as an io.ReaderAt for offsets that only grow.
type forward struct {
	in   io.Reader
	at   int64
	skip []byte
}

// ReadAt skips to an offset. The end before it is a *streamError, the end at it io.EOF.
func (f *forward) ReadAt(p []byte, at int64) (int, error) {
	if at < f.at {
		panic(fmt.Sprintf("format: a stream at byte %d is asked for byte %d", f.at, at))
	}
	if f.skip == nil {
		f.skip = make([]byte, forwardCopySize)
	}
	for f.at < at {
		n, err := f.in.Read(f.skip[:min(at-f.at, forwardCopySize)])
		f.at += int64(n)
		if err == io.EOF && f.at < at {
			return 0, &streamError{"end within a member"}
		}
		if err != nil && err != io.EOF {
			return 0, err
		}
	}
	n, err := io.ReadFull(f.in, p)
	f.at += int64(n)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// spill is a compressed shard's content in a file without a name, made at the first read, since samples are read in any
// order. All spills of the process share a budget of disk; one that had to go is made again when it is next read.
type spill struct {
	mu   sync.RWMutex
	file *os.File
	size int64
	// damage is why the content ends before the archive does, nil where it is whole.
	damage *streamError
	// members says that what follows a damaged member of gzip is content too.
	members bool
}

// ReadAt implements io.ReaderAt while readAt runs. It gives the damage at the end of content that is not whole.
func (s *spill) ReadAt(p []byte, at int64) (int, error) {
	n, err := s.file.ReadAt(p, at)
	if err == io.EOF && s.damage != nil {
		err = s.damage
	}
	return n, err
}

var spills struct {
	sync.Mutex
	list []*spill // oldest first
}

// readAt calls use with the content and its size in bytes.
func (s *spill) readAt(f store.File, use func(in io.ReaderAt, size int64) error) error {
	s.mu.RLock()
	if s.file == nil {
		s.mu.RUnlock()
		if err := s.fill(f); err != nil {
			return err
		}
		s.mu.RLock()
	}
	defer s.mu.RUnlock()
	if s.file == nil { // it went again at once, for others
		return errors.New("the expanded shard had to leave the disk; read it again")
	}
	return use(s, s.size)
}

// fill expands the shard. Damage ends the content where it lies: what is before it can be read.
func (s *spill) fill(f store.File) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		return nil
	}
	x, err := expand(f, f.Size())
	if err != nil {
		return err
	}
	defer x.Close()
	if s.members {
		x.skipDamage(f, f.Size())
	}
	out, err := os.CreateTemp("", "lfactor-shard-*")
	if err != nil {
		return err
	}
	err = os.Remove(out.Name()) // it lives as long as it is open
	n, copied := io.Copy(out, x)
	s.damage = nil
	if errors.As(copied, &s.damage) {
		copied = nil
	}
	if err = errors.Join(err, copied); err != nil {
		return errors.Join(err, out.Close())
	}
	s.file, s.size = out, n
	s.enter()
	return nil
}

// enter counts the spill and closes the oldest others while all are over the budget.
func (s *spill) enter() {
	spills.Lock()
	defer spills.Unlock()
	spills.list = append(spills.list, s)
	sum := int64(0)
	for _, x := range spills.list {
		sum += x.size
	}
	for i := 0; sum > spillBytesMax && i < len(spills.list); {
		x := spills.list[i]
		if x == s || !x.mu.TryLock() { // in use
			i++
			continue
		}
		sum -= x.size
		_ = x.file.Close() // it has no name and nobody reads it
		x.file, x.size = nil, 0
		x.mu.Unlock()
		spills.list = slices.Delete(spills.list, i, i+1)
	}
}

// Close frees the disk.
func (s *spill) Close() error {
	spills.Lock()
	spills.list = slices.DeleteFunc(spills.list, func(x *spill) bool { return x == s })
	spills.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file, s.size = nil, 0
	return err
}
