package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// File is an open safetensors file. Reads are by offset: any number of goroutines may read at once.
type File struct {
	Path     string
	r        io.ReaderAt
	closer   io.Closer
	ByName   map[string]Info
	metadata map[string]string
}

// OpenFile opens and checks a safetensors file; only its header is read.
func OpenFile(path string) (*File, error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	return openIn(Published(dir), base)
}

// openIn opens a file below root. Links that root does not follow and everything but regular files are refused.
func openIn(root folder, name string) (*File, error) {
	f, size, err := openRegular(root, name)
	if err != nil {
		return nil, err
	}
	file, err := newFile(f, filepath.Join(root.Name(), name), size)
	if err != nil {
		f.Close()
		return nil, err
	}
	file.closer = f
	return file, nil
}

// openRegular opens a regular file below root and returns its size.
func openRegular(root folder, name string) (*os.File, int64, error) {
	path := filepath.Join(root.Name(), name)
	info, err := root.Stat(name) // before opening: a FIFO would block
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, 0, err
	case err != nil:
		return nil, 0, &Error{File: path, Fault: Unsafe, Why: "not reachable inside its directory",
			Try: "replace links by the files they point to", Err: err}
	case !info.Mode().IsRegular():
		return nil, 0, &Error{File: path, Fault: Unsafe,
			Why: fmt.Sprintf("is not a regular file (%v)", info.Mode().Type())}
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// newFile reads and checks the header of a safetensors file of that size; data is read later, on demand.
func newFile(r io.ReaderAt, path string, size int64) (*File, error) {
	h, err := readHeader(r, path, size)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path, r: r, ByName: make(map[string]Info, len(h.tensors)), metadata: h.metadata}
	for _, t := range h.tensors {
		t.File = filepath.Base(path)
		f.ByName[t.Name] = t
	}
	return f, nil
}

// Tensors implements Source.
func (f *File) Tensors() []Info { return SortedInfos(f.ByName) }

// SortedInfos are the values of a map in the order of their names.
func SortedInfos(m map[string]Info) []Info {
	return slices.SortedFunc(maps.Values(m), func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
}

// Metadata returns the file's own notes, such as format: pt.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Close implements Source.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// ReadInto copies bytes [lo, hi) of a tensor to dst, whose length must be hi-lo.
func (f *File) ReadInto(name string, lo, hi int64, dst []byte) error {
	t, err := f.find(name)
	if err != nil {
		return err
	}
	if lo < 0 || lo > hi || hi > t.Bytes || int64(len(dst)) != hi-lo {
		return fmt.Errorf("%s: tensor %s: bytes [%d,%d) of %d into a buffer of %d", f.Path, name, lo, hi,
			t.Bytes, len(dst))
	}
	return f.wrap(name, readFull(f.r, dst, t.Offset+lo))
}

// ReadRanges implements Source.
func (f *File) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	t, err := f.find(name)
	if err != nil {
		return err
	}
	n, err := BoxBytes(t.DType, t.Shape, ranges)
	if err == nil && n != int64(len(dst)) {
		err = fmt.Errorf("ranges %v take %d bytes, the buffer has %d", ranges, n, len(dst))
	}
	if err != nil {
		return fmt.Errorf("%s: tensor %s: %w", f.Path, name, err)
	}
	if n == 0 {
		return nil
	}
	if n == t.Bytes {
		return f.wrap(name, readFull(f.r, dst, t.Offset))
	}
	return f.wrap(name, readRuns(f.r, t, ranges, dst))
}

// readRuns reads a proper part of a tensor stored whole.
func readRuns(r io.ReaderAt, t Info, ranges [][2]int, dst []byte) error {
	elem := int64(t.DType.Bits() / 8)
	w := &windowReader{r: r, end: t.Offset + t.Bytes}
	last := int64(-1)
	return runs(ranges, Whole(t.Shape), ranges, func(c run) error {
		stride := c.n
		if last >= 0 {
			stride = c.src - last
		}
		last = c.src
		return w.read(dst[c.dst*elem:(c.dst+c.n)*elem], t.Offset+c.src*elem, stride*elem)
	})
}

// ReadSlice copies the part [from, to) of one axis, all of the others, to dst, row-major.
func (f *File) ReadSlice(name string, axis, from, to int, dst []byte) error {
	t, err := f.find(name)
	if err != nil {
		return err
	}
	return readSlice(f, t, axis, from, to, dst)
}

// readSlice reads the part of a tensor from one index to another along an axis, and all of it along the others.
func readSlice(s Source, t Info, axis, from, to int, dst []byte) error {
	if axis < 0 || axis >= len(t.Shape) {
		return fmt.Errorf("tensor %s has no axis %d: its shape is %v", t.Name, axis, t.Shape)
	}
	box := Whole(t.Shape)
	box[axis] = [2]int{from, to}
	return s.ReadRanges(t.Name, box, dst)
}

// find is the entry of a tensor, or an error that names the file.
func (f *File) find(name string) (Info, error) {
	t, ok := f.ByName[name]
	if !ok {
		return Info{}, &Error{File: f.Path, Tensor: name, Fault: Missing, Why: "the file has no such tensor"}
	}
	return t, nil
}

// wrap adds file and tensor to a failed read.
func (f *File) wrap(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &Error{File: f.Path, Tensor: name, Fault: Truncated, Why: "the file ended while it was read", Err: err}
	}
	return fmt.Errorf("%s: reading %s: %w", f.Path, name, err)
}
