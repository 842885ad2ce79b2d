package trained

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/lfactor/lfactor/dataset/format"
	"github.com/lfactor/lfactor/stages/checkpoint"
	"github.com/lfactor/lfactor/topology/machine"
)

// Store keeps numbers by the content that they were made of.
type Store interface {
	// Get returns what was kept for a key, nil if nothing was.
	Get(key string) ([][]float32, error)
	Put(key string, v ...[]float32) error
}

// Folder is a Store in a directory that runs and processes may share: an Arrow file for each key, named after the key's
// hash, with the key in the metadata of its schema and a row for each list of numbers. A file appears when it is whole.
type Folder struct{ dir string }

// OpenFolder makes the directory where it is missing.
func OpenFolder(dir string) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	return &Folder{dir}, nil
}

// keyName is the metadata that has a file's key.
const keyName = "lfactor.key"

// keptMost bounds the bytes of a file that is read: numbers of a long clip.
const keptMost = 4 << 30

func (f *Folder) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	name := hex.EncodeToString(sum[:])
	return filepath.Join(f.dir, name[:2], name[2:]+".arrow")
}

// Get implements Store. A file that is damaged, or of another key, is an error that names it.
func (f *Folder) Get(key string) ([][]float32, error) {
	path := f.path(key)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && info.Size() > keptMost {
		err = fmt.Errorf("%d bytes are too many", info.Size())
	}
	if err != nil {
		return nil, damaged(path, err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	v, err := decodeKept(raw, key)
	if err != nil {
		return nil, damaged(path, err)
	}
	return v, nil
}

// damaged says what to do about a file that cannot be used.
func damaged(path string, err error) error {
	return fmt.Errorf("%s, which keeps latents or states of captions, cannot be used: %w; remove it, and it is "+
		"made again", path, err)
}

// decodeKept reads a file. Arrow's reader panics on some files that are none.
func decodeKept(raw []byte, key string) (out [][]float32, err error) {
	defer func() {
		if r := recover(); r != nil {
			out, err = nil, fmt.Errorf("it is no Arrow file: %v", r)
		}
	}()
	r, err := ipc.NewFileReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it is in memory
	meta := r.Schema().Metadata()
	if i := meta.FindKey(keyName); i < 0 || meta.Values()[i] != key {
		return nil, errors.New("it is of another key")
	}
	for i := range r.NumRecords() {
		rec, err := r.Record(i)
		if err != nil {
			return nil, err
		}
		lists, ok := rec.Column(0).(*array.LargeList)
		if !ok {
			return nil, errors.New("its column has no lists")
		}
		values, ok := lists.ListValues().(*array.Float32)
		if !ok {
			return nil, errors.New("its lists have no float32")
		}
		for row := range lists.Len() {
			from, to := lists.ValueOffsets(row)
			out = append(out, bytes32(values.Float32Values()[from:to]))
		}
	}
	if out == nil {
		return nil, errors.New("it has no rows")
	}
	return out, nil
}

// bytes32 is a copy, nil for none.
func bytes32(v []float32) []float32 {
	if len(v) == 0 {
		return nil
	}
	return append([]float32(nil), v...)
}

// Put implements Store.
func (f *Folder) Put(key string, v ...[]float32) error {
	raw, err := encodeKept(key, v)
	if err != nil {
		return err
	}
	path := f.path(key)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return machine.Replace(path, 0o600, func(w *os.File) error {
		_, err := w.Write(raw)
		return err
	})
}

func encodeKept(key string, v [][]float32) ([]byte, error) {
	meta := arrow.NewMetadata([]string{keyName}, []string{key})
	schema := arrow.NewSchema([]arrow.Field{{Name: "numbers",
		Type: arrow.LargeListOf(arrow.PrimitiveTypes.Float32)}}, &meta)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	lists := b.Field(0).(*array.LargeListBuilder)
	for _, row := range v {
		lists.Append(true)
		lists.ValueBuilder().(*array.Float32Builder).AppendValues(row, nil)
	}
	rec := b.NewRecord()
	defer rec.Release()
	var out seekBuffer
	w, err := ipc.NewFileWriter(&out, ipc.WithSchema(schema))
	if err != nil {
		return nil, err
	}
	if err = errors.Join(w.Write(rec), w.Close()); err != nil {
		return nil, err
	}
	return out.b, nil
}

// seekBuffer is a file in memory, of which Arrow's writer asks the place alone.
type seekBuffer struct{ b []byte }

func (s *seekBuffer) Write(p []byte) (int, error) {
	s.b = append(s.b, p...)
	return len(p), nil
}

// Seek implements io.Seeker for the place at the end.
func (s *seekBuffer) Seek(int64, int) (int64, error) { return int64(len(s.b)), nil }

// printBytes of the start, the middle and the end of each file of weights tell folders apart.
const printBytes = 64 << 10

// weighty are the endings of files that weights may lie in.
var weighty = []string{".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf"}

// HasWeights is an error where the headers of a folder's weights cannot be read. Whoever reads the numbers only with
// the first sample asks before: it would seem to be the sample's fault.
func HasWeights(dir string) error {
	w, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return err
	}
	return w.Close()
}

// FolderPrint changes with the configuration and the weights of a folder.
func FolderPrint(dir string) (string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		return "", err
	}
	parts := []any{string(text)}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.IsDir() || !slices.Contains(weighty, filepath.Ext(e.Name())) {
			continue
		}
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		info, err := f.Stat()
		if err != nil {
			_ = f.Close() // it is only read
			return "", err
		}
		n := info.Size()
		for _, at := range []int64{0, max(0, n/2-printBytes/2), max(0, n-printBytes)} {
			b := make([]byte, min(printBytes, n))
			if _, err = f.ReadAt(b, at); err != nil {
				break
			}
			parts = append(parts, string(b))
		}
		_ = f.Close() // it is only read
		if err != nil {
			return "", err
		}
		parts = append(parts, e.Name(), n)
	}
	return format.HashOf(parts...), nil
}
