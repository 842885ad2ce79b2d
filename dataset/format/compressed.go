package format

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lfactor/lfactor/dataset/store"
)

// compressedSuffixes are what names of compressed text end in, behind those of its own format.
var compressedSuffixes = []string{".gz", ".zst", ".zstd", ".bz2", ".xz"}

// plainName is a path without the ending of compressed files.
func plainName(path string) string {
	for _, s := range compressedSuffixes {
		if rest, ok := strings.CutSuffix(strings.ToLower(path), s); ok {
			return rest
		}
	}
	return path
}

// plainHead is the start of a file, expanded as far as it goes where it is compressed.
func plainHead(head []byte) []byte {
	in := bytes.NewReader(head)
	if compressed, err := isCompressed(in); err != nil || !compressed {
		return head
	}
	x, err := expand(in, int64(len(head)))
	if err != nil {
		return nil
	}
	defer x.Close()
	out := make([]byte, 16*len(head))
	n, _ := io.ReadFull(x, out) // it breaks off where the head does
	return out[:n]
}

// expandedFile is the content of a compressed file, in a file without a name in the folder for temporary
// files. Places are bytes of the content.
type expandedFile struct {
	store.File
	spill spill
	size  int64
}

// openContent opens a file, and its content where it is compressed. Content that is damaged is an error:
// what follows it is lost.
func openContent(path string) (store.File, error) { return openExpanded(path, &expandedFile{}) }

// openMembers is openContent of a file of records that are compressed each for itself: a member of gzip that is
// damaged ends where it does, and the next follows.
func openMembers(path string) (store.File, error) {
	return openExpanded(path, &expandedFile{spill: spill{members: true}})
}

func openExpanded(path string, x *expandedFile) (store.File, error) {
	f, err := store.Open(path)
	if err != nil {
		return nil, err
	}
	compressed, err := isCompressed(f)
	if err == nil && !compressed {
		return f, nil
	}
	x.File = f
	if err == nil {
		err = x.spill.fill(f)
	}
	if err == nil && x.spill.damage != nil {
		err = fmt.Errorf("%s: behind byte %d of the content the compressed data %w; mend the file, or "+
			"expand it as far as it goes", f.Name(), x.spill.size, x.spill.damage)
	}
	if err != nil {
		return nil, errors.Join(err, x.Close())
	}
	x.size = x.spill.size
	return x, nil
}

// Size implements store.File.
func (x *expandedFile) Size() int64 { return x.size }

// ReadAt implements store.File.
func (x *expandedFile) ReadAt(p []byte, at int64) (n int, err error) {
	err = x.spill.readAt(x.File, func(in io.ReaderAt, _ int64) error {
		n, err = in.ReadAt(p, at)
		return err
	})
	return n, err
}

// Close implements store.File.
func (x *expandedFile) Close() error { return errors.Join(x.spill.Close(), x.File.Close()) }
