package checkpoint

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
)

// partial marks files of a directory that is still being written.
const partial = ".partial"

// DirWriter writes a Hugging Face directory. All tensors are known from the start, so each has its place in
// a file and parts may come in any order from any goroutine: no file is ever held in memory. Files appear
// under their names only in Commit, the index last.
type DirWriter struct {
	fs      FS
	dir     string
	names   names
	shards  []*placedFile
	tensors map[string]*placedFile
	total   int64
	done    bool
}

// NewWriter begins a directory of the given tensors (Name, DType and Shape count), in files of at most
// shardBytes of data, 0 meaning one file. A tensor larger than that has a file of its own. The directory is
// made if needed; Commit replaces the model files in it. Each file carries the note format: pt.
func NewWriter(dir string, tensors []Info, shardBytes int64) (*DirWriter, error) {
	return newDirWriter(OS, dir, tensors, shardBytes)
}

// NewWriterOf is NewWriter for files whose names begin with a stem, Stem or DiffusersStem.
func NewWriterOf(stem, dir string, tensors []Info, shardBytes int64) (*DirWriter, error) {
	return newStemWriter(OS, stem, dir, tensors, shardBytes)
}

// newDirWriter is newStemWriter for transformers' names.
func newDirWriter(fs FS, dir string, tensors []Info, shardBytes int64) (*DirWriter, error) {
	return newStemWriter(fs, Stem, dir, tensors, shardBytes)
}

// newStemWriter lays out the shards for tensors that are known in advance, so that their data can
// then be written in any order.
func newStemWriter(fs FS, stem, dir string, tensors []Info, shardBytes int64) (*DirWriter, error) {
	groups, err := splitShards(tensors, shardBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	w := &DirWriter{fs: fs, dir: dir, names: namesOf(stem), tensors: map[string]*placedFile{}}
	for i, group := range groups {
		name := w.names.single
		if len(groups) > 1 {
			name = fmt.Sprintf("%s-%05d-of-%05d.safetensors", stem, i+1, len(groups))
		}
		shard, err := newPlacedFile(fs, filepath.Join(dir, name), group)
		if err != nil {
			return nil, errors.Join(err, w.Abort())
		}
		w.shards = append(w.shards, shard)
		for _, t := range group {
			w.tensors[t.Name] = shard
			w.total += shard.places[t.Name].Bytes
		}
	}
	if len(w.tensors) != len(tensors) {
		return nil, errors.Join(fmt.Errorf("%s: two tensors have one name", dir), w.Abort())
	}
	return w, nil
}

// splitShards groups tensors, in the order given, into files of at most limit bytes.
func splitShards(tensors []Info, limit int64) ([][]Info, error) {
	var groups [][]Info
	var used int64
	for _, t := range tensors {
		n, err := ByteSize(t.DType, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", quoteOdd(t.Name), err)
		}
		if len(groups) == 0 || limit > 0 && used > 0 && used+n > limit {
			groups, used = append(groups, nil), 0
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], t)
		used += n
	}
	if len(groups) == 0 {
		groups = [][]Info{nil}
	}
	return groups, nil
}

// WriteRanges implements Sink.
func (w *DirWriter) WriteRanges(name string, ranges [][2]int, src []byte) error {
	f := w.tensors[name]
	if f == nil {
		return fmt.Errorf("%s: tensor %s was not announced", w.dir, quoteOdd(name))
	}
	return f.writeRanges(name, ranges, src)
}

// WriteTensor writes a whole tensor.
func (w *DirWriter) WriteTensor(name string, src []byte) error {
	f := w.tensors[name]
	if f == nil {
		return fmt.Errorf("%s: tensor %s was not announced", w.dir, quoteOdd(name))
	}
	return f.writeRanges(name, Whole(f.places[name].Shape), src)
}

// Commit implements Sink.
func (w *DirWriter) Commit() error {
	if w.done {
		return nil
	}
	for _, s := range w.shards {
		if err := s.finish(); err != nil {
			return err
		}
	}
	if err := removeOld(w.fs, w.dir, w.names); err != nil {
		return err
	}
	for _, s := range w.shards {
		if err := w.fs.Rename(s.path+partial, s.path); err != nil {
			return err
		}
	}
	w.done = true
	if len(w.shards) == 1 {
		return w.fs.SyncDir(w.dir)
	}
	return w.writeIndex()
}

// writeIndex writes which file has which tensor, in the form of Hugging Face.
func (w *DirWriter) writeIndex() error {
	files := map[string]string{}
	for name, s := range w.tensors {
		files[name] = filepath.Base(s.path)
	}
	text, err := indexText(files, w.total)
	if err != nil {
		return err
	}
	return replaceFile(w.fs, filepath.Join(w.dir, w.names.index), text)
}

// Abort implements Sink.
func (w *DirWriter) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	var errs []error
	for _, s := range w.shards {
		errs = append(errs, s.abort())
	}
	return errors.Join(errs...)
}

// placedFile is one safetensors file written in any order.
type placedFile struct {
	fs     FS
	path   string
	f      WFile
	places map[string]Info

	mu     sync.Mutex
	left   map[string]int64 // bytes of each tensor still to come
	closed bool
}

// newPlacedFile creates a file whose header is complete and whose tensors still lack their data. It
// has a temporary name until it is finished.
func newPlacedFile(fs FS, path string, tensors []Info, more ...[2]string) (*placedFile, error) {
	metadata := map[string]string{"format": "pt"}
	for _, m := range more {
		metadata[m[0]] = m[1]
	}
	head, placed, err := layout(tensors, metadata)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := fs.RemoveAll(path + partial); err != nil {
		return nil, err
	}
	f, err := fs.Create(path + partial)
	if err != nil {
		return nil, err
	}
	p := &placedFile{fs: fs, path: path, f: f, places: map[string]Info{}, left: map[string]int64{}}
	for _, t := range placed {
		p.places[t.Name] = t
		p.left[t.Name] = t.Bytes
	}
	if _, err := f.WriteAt(head, 0); err != nil {
		return nil, errors.Join(err, p.abort())
	}
	return p, nil
}

// writeRanges writes a box of a tensor to its place. Calls may run at the same time for boxes that
// do not overlap; the bytes that are left tell in the end whether all came.
func (p *placedFile) writeRanges(name string, ranges [][2]int, src []byte) error {
	t, ok := p.places[name]
	if !ok {
		return fmt.Errorf("%s: tensor %s was not announced", p.path, quoteOdd(name))
	}
	n, err := BoxBytes(t.DType, t.Shape, ranges)
	if err == nil && n != int64(len(src)) {
		err = fmt.Errorf("ranges %v take %d bytes, got %d", ranges, n, len(src))
	}
	if err != nil {
		return fmt.Errorf("%s: tensor %s: %w", p.path, quoteOdd(name), err)
	}
	p.mu.Lock()
	p.left[name] -= n
	p.mu.Unlock()
	switch {
	case n == 0:
		return nil
	case n == t.Bytes: // also the only case of types narrower than a byte
		_, err := p.f.WriteAt(src, t.Offset)
		return err
	}
	elem := int64(t.DType.Bits() / 8)
	return runs(ranges, ranges, Whole(t.Shape), func(c run) error {
		_, err := p.f.WriteAt(src[c.src*elem:(c.src+c.n)*elem], t.Offset+c.dst*elem)
		return err
	})
}

// finish checks that every byte came and makes them durable.
func (p *placedFile) finish() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range SortedKeys(p.left) {
		if p.left[name] != 0 {
			return fmt.Errorf("%s: tensor %s: %d bytes of %d were not written exactly once", p.path,
				quoteOdd(name), p.left[name], p.places[name].Bytes)
		}
	}
	if p.closed {
		return nil
	}
	p.closed = true
	err := p.f.Sync()
	return errors.Join(err, p.f.Close())
}

// abort closes and removes the file; it may be called twice.
func (p *placedFile) abort() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.f.Close() // the file goes away: what closing says does not matter
	}
	return p.fs.RemoveAll(p.path + partial)
}
