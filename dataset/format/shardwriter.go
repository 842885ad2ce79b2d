package format

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/lfactor/lfactor/dataset"
)

// ShardWriter writes one webdataset shard. The same samples give the same bytes: times and owners are not recorded.
type ShardWriter struct {
	path string
	file *os.File // nil for a shard that is written elsewhere
	buf  *bufio.Writer
	zip  io.WriteCloser // nil for a plain archive
	tar  *tar.Writer
	last string
	size int64
}

// CreateShard creates a shard. It is compressed as its name says: ".gz" and ".tgz" with gzip, ".zst" and
// ".zstd" with zstd.
func CreateShard(path string) (*ShardWriter, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w, err := NewShard(path, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.file = f
	return w, nil
}

// NewShard is CreateShard of what is written elsewhere: Close ends the archive, and not to.
func NewShard(path string, to io.Writer) (w *ShardWriter, err error) {
	w = &ShardWriter{path: path, buf: bufio.NewWriterSize(to, 1<<18)}
	var out io.Writer = w.buf
	switch {
	case HasSuffix(path, ".gz", ".tgz"):
		w.zip = gzip.NewWriter(w.buf)
	case HasSuffix(path, ".zst", ".zstd"):
		if w.zip, err = zstd.NewWriter(w.buf, zstd.WithEncoderConcurrency(1)); err != nil {
			return nil, err
		}
	}
	if w.zip != nil {
		out = w.zip
	}
	w.tar = tar.NewWriter(out)
	return w, nil
}

// Add writes a sample. A key or part name that would read back as another, and the key of the sample before,
// are errors, and nothing is written.
func (w *ShardWriter) Add(key string, parts []dataset.Part) error {
	if err := w.Check(key, parts); err != nil {
		return fmt.Errorf("shard %s: sample %q: %w", w.path, Clip(key), err)
	}
	for _, p := range parts {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: key + "." + p.Name, Size: int64(len(p.Bytes)), Mode: 0o444}
		if err := w.tar.WriteHeader(h); err != nil {
			return fmt.Errorf("shard %s: %w", w.path, err)
		}
		if _, err := w.tar.Write(p.Bytes); err != nil {
			return fmt.Errorf("shard %s: %w", w.path, err)
		}
		w.size += tarBlock + padded(int64(len(p.Bytes)))
	}
	w.last = key
	return nil
}

// Check says why a sample cannot be the next one of the shard, if so.
func (w *ShardWriter) Check(key string, parts []dataset.Part) error {
	if key == w.last {
		return errors.New("the sample before has the same key")
	}
	if len(parts) == 0 || len(parts) > shardPartsMax {
		return fmt.Errorf("it has %d files; 1 to %d can be", len(parts), shardPartsMax)
	}
	seen := map[string]bool{}
	for _, p := range parts {
		name := key + "." + p.Name
		k, ext, ok := splitName(name)
		if !ok || k != key || ext != p.Name || leaves(name) || strings.HasSuffix(name, "/") {
			return fmt.Errorf("the file %q would not be read as its part %q", Clip(name), Clip(p.Name))
		}
		if seen[ext] {
			return fmt.Errorf("the part %q is there twice", ext)
		}
		seen[ext] = true
	}
	return nil
}

// CloseSynced is Close, and the shard is on disk when it returns.
func (w *ShardWriter) CloseSynced() error {
	err := w.tar.Close()
	if w.zip != nil {
		err = errors.Join(err, w.zip.Close())
	}
	return errors.Join(err, w.buf.Flush(), w.file.Sync(), w.file.Close())
}

// Bytes is how much was written, before compression.
func (w *ShardWriter) Bytes() int64 { return w.size }

// Close ends the archive and closes the file.
func (w *ShardWriter) Close() error {
	err := w.tar.Close()
	if w.zip != nil {
		err = errors.Join(err, w.zip.Close())
	}
	if err = errors.Join(err, w.buf.Flush()); w.file == nil {
		return err
	}
	return errors.Join(err, w.file.Close())
}
