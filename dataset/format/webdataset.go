package format

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
)

// webdataset's tar shards: the files of a sample follow each other and share the name up to the first dot
// behind the last slash. The shard may be compressed with gzip or zstd. Places are bytes of the tar archive,
// expanded where it is compressed. Source: webdataset 1.0.2, tariterators.py.
var _ = dataset.Register(dataset.Format{
	Name: "webdataset",
	Doc:  "webdataset's tar shards (.tar, .tar.gz, .tar.zst): samples of several files",
	Kind: dataset.KindParts,
	Match: func(path string, head []byte) bool {
		return HasSuffix(path, shardSuffixes...) || len(head) >= tarBlock && string(head[257:262]) == "ustar"
	},
	Open: func(path string, o dataset.Options) (dataset.Source, error) { return openShard(path, o) },
	Write: func(dir string, docs []dataset.Document) (path string, o dataset.Options, err error) {
		path = filepath.Join(dir, "shard-000000.tar")
		w, err := CreateShard(path)
		if err != nil {
			return path, o, err
		}
		for _, d := range docs {
			err = errors.Join(err, w.Add(d.Key, d.Parts))
		}
		return path, o, errors.Join(err, w.Close())
	},
})

var shardSuffixes = []string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.zstd", ".tar.bz2", ".tar.xz"}

// shard is an open tar file.
type shard struct {
	file  store.File
	size  int64
	index *index
	spill *spill // nil for an archive that is not compressed
	print string
	limit int64 // bytes of a sample
}

// openShard opens a tar file of samples, whose index is made or read.
func openShard(path string, o dataset.Options) (*shard, error) {
	f, err := store.Open(path)
	if err != nil {
		return nil, err
	}
	s := &shard{file: f, limit: o.Limit()}
	if err := s.load(o); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// load takes the shard's fingerprint and index. A compressed shard gets a place to be unpacked to,
// since samples are read in any order.
func (s *shard) load(o dataset.Options) error {
	s.size = s.file.Size()
	compressed, err := isCompressed(s.file)
	if err != nil {
		return err
	}
	if compressed {
		s.spill = &spill{}
	}
	if s.print, err = FingerprintFile(s.file, s.size, o.Full); err != nil {
		return err
	}
	s.print = HashOf("webdataset", s.print, s.limit)
	s.index, err = shardIndex(s.file, s.size, o.IndexDir)
	return err
}

func (s *shard) Name() string        { return s.file.Name() }
func (s *shard) Kind() dataset.Kind  { return dataset.KindParts }
func (s *shard) Fingerprint() string { return s.print }

// Len counts an empty file, which is not a archive, as one sample, which is bad. An archive without samples has none.
func (s *shard) Len() int64 {
	if s.size == 0 {
		return 1
	}
	return s.index.n
}

// Close closes the file, its index, and what was unpacked.
func (s *shard) Close() error {
	err := errors.Join(s.file.Close(), s.index.close())
	if s.spill != nil {
		err = errors.Join(err, s.spill.Close())
	}
	return err
}

// Read reads the files of a sample. Their names are never used as paths.
func (s *shard) Read(i int64) (d dataset.Document, err error) {
	d.Place.File = s.file.Name()
	if s.size == 0 {
		return d, &dataset.BadSample{Place: d.Place, Reason: "the file is empty"}
	}
	at, err := s.index.at(i)
	if err != nil {
		return d, err
	}
	d.Place.Offset = at.start
	if s.spill == nil {
		return d, readSample(s.file, s.size, at, s.limit, &d)
	}
	return d, s.spill.readAt(s.file, func(in io.ReaderAt, size int64) error {
		return readSample(in, size, at, s.limit, &d)
	})
}

// readSample reads the sample at a span of an archive into d.
func readSample(in io.ReaderAt, size int64, at span, limit int64, d *dataset.Document) error {
	bad := func(format string, args ...any) error {
		d.Parts = nil
		return &dataset.BadSample{Place: d.Place, Reason: fmt.Sprintf("sample %q: ", d.Key) +
			fmt.Sprintf(format, args...)}
	}
	var content []byte
	head := in
	if n := min(at.end, size) - at.start; n > 0 && n <= limit+shardPartsMax*tarBlock {
		content = make([]byte, n)
		if _, err := in.ReadAt(content, at.start); err != nil && err != io.EOF {
			return err
		}
		head = window{content, at.start, in}
	}
	var g gathered
	err := g.read(&tarReader{in: head, at: at.start, size: size}, at.end)
	d.Key = g.key
	var broken *brokenError
	if errors.As(err, &broken) {
		return bad("%s", broken.Error())
	}
	if err != nil {
		return err
	}
	if fault := g.fault(limit); fault != "" {
		return bad("%s", fault)
	}
	d.Parts = make([]dataset.Part, 0, len(g.entries))
	for _, e := range g.entries {
		from := e.data - at.start
		if from+e.size > int64(len(content)) {
			return bad("%s reaches beyond the sample's bytes; delete the shard's index", e.name)
		}
		d.Parts = append(d.Parts, dataset.Part{Name: e.ext, Bytes: content[from : from+e.size : from+e.size]})
	}
	return nil
}

// window is a stretch of an archive in memory, and the archive beyond it.
type window struct {
	b    []byte
	from int64
	rest io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (w window) ReadAt(p []byte, at int64) (int, error) {
	if i := at - w.from; i >= 0 && i+int64(len(p)) <= int64(len(w.b)) {
		return copy(p, w.b[i:]), nil
	}
	return w.rest.ReadAt(p, at)
}

// sampleEntry is a member that belongs to a sample.
type sampleEntry struct {
	entry
	ext string
}

// gathered is the members of one sample, up to the first at fault.
type gathered struct {
	key     string
	entries []sampleEntry
	seen    map[string]bool // their extensions, where they are many
}

// seenMax is how many members are compared one by one.
const seenMax = 16

// add takes a member of the sample. After a fault it takes no more.
func (g *gathered) add(m entry, key, ext string) {
	if n := len(g.entries); n > 0 && g.entries[n-1].fault != "" {
		return
	}
	if len(g.entries) == 0 {
		g.key = key
	}
	switch {
	case m.fault != "":
	case key != g.key:
		m.fault = fmt.Sprintf("it belongs to another sample: the index is wrong, or the shard has over "+
			"%d samples", shardSamplesMax)
	case len(g.entries) == shardPartsMax:
		m.fault = fmt.Sprintf("the sample has over %d files", shardPartsMax)
	case g.has(ext):
		m.fault = "it is there twice"
	}
	g.entries = append(g.entries, sampleEntry{m, ext})
	if g.seen != nil {
		g.seen[ext] = true
	}
}

// has tells whether the sample has a part with this ending. Few parts are searched in turn; a map
// is made once there are many.
func (g *gathered) has(ext string) bool {
	if g.seen != nil {
		return g.seen[ext]
	}
	for i := range g.entries {
		if g.entries[i].ext == ext {
			return true
		}
	}
	if len(g.entries) == seenMax {
		g.seen = map[string]bool{}
		for i := range g.entries {
			g.seen[g.entries[i].ext] = true
		}
	}
	return false
}

// read takes the members of an archive up to a place, or to the first at fault.
func (g *gathered) read(t *tarReader, end int64) error {
	for t.at < end {
		m, err := t.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if m.start >= end {
			return nil // the next archive's
		}
		key, ext, skip := judge(&m)
		if skip {
			continue
		}
		if g.add(m, key, ext); g.entries[len(g.entries)-1].fault != "" {
			return nil
		}
	}
	return nil
}

// fault says why a sample cannot be used, "" if it can.
func (g *gathered) fault(limit int64) string {
	sum := int64(0)
	for _, e := range g.entries {
		if e.fault != "" {
			return fmt.Sprintf("%q at byte %d: %s", Clip(e.name), e.start, e.fault)
		}
		if sum += e.size; sum > limit {
			return fmt.Sprintf("its files have over %d bytes", limit)
		}
	}
	if len(g.entries) == 0 {
		return "there is no file in it; delete the shard's index"
	}
	return ""
}

// Clip shortens a name for people.
func Clip(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}
