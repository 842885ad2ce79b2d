package format

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/lfactor/lfactor/dataset"
	"github.com/lfactor/lfactor/dataset/store"
	"github.com/lfactor/lfactor/topology/machine"
)

// Bounds of a shard. A sample of more files is bad; of a shard with more samples the rest is one bad sample.
const (
	shardPartsMax   = 4096
	shardSamplesMax = 1 << 22 // 64 MiB of index
)

// memberName is webdataset's rule: the key ends at the first dot behind the last slash.
var memberName = regexp.MustCompile(`^((?:.*/|)[^.]+)[.]([^/]*)$`)

// memberMeta matches the names that webdataset skips: folders and files in double underscores.
var memberMeta = regexp.MustCompile(`^__[^/]*__($|/)`)

// splitName returns the key and the lower-case extension of a member's name, and false for a name that webdataset
// skips. Source: webdataset 1.0.2, tariterators.py, base_plus_ext, group_by_keys and tar_file_iterator.
func splitName(name string) (key, ext string, ok bool) {
	if strings.HasPrefix(name, "__") && memberMeta.MatchString(name) {
		return "", "", false
	}
	base := strings.LastIndexByte(name, '/') + 1
	if dot := strings.IndexByte(name[base:], '.'); dot > 0 && !strings.Contains(name, "\n") {
		return name[:base+dot], strings.ToLower(name[base+dot+1:]), true
	}
	m := memberName.FindStringSubmatch(name)
	if m == nil {
		return "", "", false
	}
	return m[1], strings.ToLower(m[2]), true
}

// leaves says whether a name points out of the folder that a shard would be unpacked to.
func leaves(name string) bool {
	if strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 {
		return true
	}
	return strings.Contains(name, "..") && strings.Contains("/"+name+"/", "/../")
}

// judge returns the sample key and the extension that an entry belongs to; skip says that it belongs to
// none. An entry that is faulty and has no name is a sample of its own, with its place for a key.
func judge(m *entry) (key, ext string, skip bool) {
	if m.kind == '5' {
		return "", "", true
	}
	key, ext, ok := splitName(m.name)
	if !ok && (m.fault == "" || m.name != "") {
		return "", "", true
	}
	if !ok {
		key = fmt.Sprintf("\x00%d", m.start)
	}
	if m.fault == "" && leaves(m.name) {
		m.fault = "its name leads out of the shard's folder"
	}
	return key, ext, false
}

// scanSamples finds where the samples of an archive lie: members in a row with the same key. A place where
// the archive breaks ends the last sample, which is bad then, since nobody can tell whether it is whole; its
// span ends behind the archive.
func scanSamples(t *tarReader, samplesMax int64, yield func(span) error) error {
	var key string
	var now span
	n, open, ends := int64(0), false, 0
	flush := func() error {
		if !open {
			return nil
		}
		open = false
		n++
		return yield(now)
	}
	for {
		m, err := t.next()
		var broken *brokenError
		if errors.As(err, &broken) {
			if !open {
				now.start, open = m.start, true
			}
			now.end = max(broken.at+tarBlock, t.size+1)
			return flush()
		}
		if err == io.EOF {
			return flush()
		}
		if err != nil {
			return err
		}
		k, _, skip := judge(&m)
		if skip {
			continue
		}
		if open && (k != key || t.ends != ends) && n < samplesMax-1 {
			if err := flush(); err != nil {
				return err
			}
		}
		if !open {
			key, now.start, open, ends = k, m.start, true, t.ends
		}
		now.end = m.end()
	}
}

// pageReader reads small pieces of a file through one page, since headers follow each other closely in
// shards of small members and are far apart in others.
type pageReader struct {
	in   io.ReaderAt
	page [4096]byte
	at   int64 // of the page
	n    int   // bytes in it
}

// ReadAt implements io.ReaderAt for one goroutine.
func (r *pageReader) ReadAt(p []byte, at int64) (int, error) {
	if len(p) > tarBlock {
		return r.in.ReadAt(p, at)
	}
	if at < r.at || at+int64(len(p)) > r.at+int64(r.n) {
		n, err := r.in.ReadAt(r.page[:], at)
		r.at, r.n = at, n
		if n < len(p) {
			return copy(p, r.page[:n]), err
		}
	}
	return copy(p, r.page[at-r.at:r.n]), nil
}

// shardIndex returns where the samples of a shard lie: from the .idx file next to it, if there is a fit one,
// or from a walk over its headers.
func shardIndex(f store.File, size int64, dir string) (*index, error) {
	if x := readIdx(f, size); x != nil {
		x.compact()
		return x, nil
	}
	compressed, err := isCompressed(f)
	if err != nil {
		return nil, err
	}
	limit := int64(shardSamplesMax)
	if dir != "" {
		limit = math.MaxInt64 // the index is not in memory
	}
	walk := func(_ *bufio.Reader, yield func(span) error) error {
		if !compressed {
			return scanSamples(&tarReader{in: &pageReader{in: f}, size: size}, limit, yield)
		}
		s, err := expand(f, size)
		if err != nil {
			return err
		}
		defer s.Close()
		return scanSamples(&tarReader{in: &forward{in: s}, size: -1}, limit, yield)
	}
	if dir == "" && size >= keepFrom && store.Scheme(f.Name()) == "" {
		return keptIndex(f, walk)
	}
	x, err := buildIndex(f, "webdataset", walk, dir)
	if err == nil {
		x.compact()
	}
	return x, err
}

// keepFrom is how many bytes a shard has whose index is kept for later runs: the walk over a smaller one takes
// no longer than to find what was kept.
const keepFrom = 1 << 20

// keptIndex is the index of a shard on disk that an earlier run made of this very file, or that is made now and
// kept: where samples begin and the last one ends, in tarBlocks, little endian uint32 each.
func keptIndex(f store.File, walk scan) (*index, error) {
	path, err := filepath.Abs(f.Name())
	if err != nil {
		return nil, err
	}
	var made *index // what cannot be written so is kept by nobody
	b, err := store.Kept(HashOf("shard index 1", path, f.Size(), f.Version()), func() ([]byte, error) {
		x, err := buildIndex(f, "webdataset", walk, "")
		if err != nil {
			return nil, err
		}
		x.compact()
		if made = x; x.n > 0 && x.blocks == nil {
			return nil, errors.New("it cannot be written so")
		}
		var b []byte
		for _, at := range x.blocks {
			b = binary.LittleEndian.AppendUint32(b, at)
		}
		return binary.LittleEndian.AppendUint64(b, uint64(x.end)), nil
	})
	if made != nil {
		return made, nil
	}
	if err != nil {
		return nil, err
	}
	x := &index{n: int64(len(b)-8) / 4, spans: []span{}}
	if x.n > 0 {
		x.spans, x.blocks = nil, make([]uint32, x.n)
		x.end = int64(binary.LittleEndian.Uint64(b[4*x.n:]))
	}
	for i := range x.blocks {
		x.blocks[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return x, nil
}

// idxPath is where Energon keeps the index of a shard.
func idxPath(shard string) string { return shard + ".idx" }

// readIdx reads the index that Energon or WriteIndex left: the samples' offsets and the end of the last one,
// little endian uint64 each. One that does not fit the shard, or is older, is not used: nil.
func readIdx(shard store.File, size int64) *index {
	if store.Scheme(shard.Name()) != "" {
		return nil // nothing tells its age
	}
	have, err := os.Stat(idxPath(shard.Name()))
	if err != nil || have.Size()%8 != 0 || have.Size() < 8 || have.Size()/8 > shardSamplesMax {
		return nil
	}
	if info, err := os.Stat(shard.Name()); err != nil || have.ModTime().Before(info.ModTime()) {
		return nil
	}
	b, err := os.ReadFile(idxPath(shard.Name()))
	if err != nil {
		return nil
	}
	spans, ok := parseIdx(b, size)
	if !ok {
		return nil
	}
	return &index{spans: spans, n: int64(len(spans))}
}

// parseIdx reads an index of a shard of a size in bytes.
func parseIdx(b []byte, size int64) (spans []span, ok bool) {
	if len(b)%8 != 0 || len(b) == 0 {
		return nil, false
	}
	spans = make([]span, 0, len(b)/8-1)
	last := int64(-1)
	for i := 0; i < len(b); i += 8 {
		at := binary.LittleEndian.Uint64(b[i:])
		if at > uint64(size) || at%tarBlock != 0 || int64(at) <= last {
			return nil, false
		}
		if i > 0 {
			spans = append(spans, span{last, int64(at)})
		}
		last = int64(at)
	}
	return spans, true
}

// WriteIndex writes the index of an uncompressed shard next to it, as SHARD.idx in Megatron-Energon's form, and returns
// the number of samples. A later run then opens the shard without a walk over it. A shard that breaks off is an error.
func WriteIndex(shard string) (samples int64, err error) {
	f, err := os.Open(shard)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	compressed, err := isCompressed(f)
	if err != nil {
		return 0, err
	}
	if compressed {
		return 0, fmt.Errorf("index of %s: the shard is compressed: there is no seeking in it; unpack "+
			"it to .tar first", shard)
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	var b []byte
	end := int64(0)
	err = scanSamples(&tarReader{in: &pageReader{in: f}, size: info.Size()}, shardSamplesMax, func(s span) error {
		if s.end > info.Size() {
			return fmt.Errorf("the sample at byte %d is cut off", s.start)
		}
		b = binary.LittleEndian.AppendUint64(b, uint64(s.start))
		end = s.end
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("index of %s: %w", shard, err)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(end))
	return int64(len(b)/8 - 1), writeWhole(idxPath(shard), b)
}

// writeWhole writes a file under another name and renames it when it is whole. Others may write it at the same time.
func writeWhole(path string, b []byte) error {
	return machine.Replace(path, 0o644, func(out *os.File) error {
		_, err := io.Copy(out, bytes.NewReader(b))
		return err
	})
}

// WriteOwn is writeWhole for a file that nobody else writes: what a kill leaves, the next run takes up.
func WriteOwn(path string, b []byte) error {
	out, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	return put(out, path, b)
}

// put writes a file under a temporary name and renames it, so that nobody sees half of it.
func put(out *os.File, path string, b []byte) error {
	_, err := io.Copy(out, bytes.NewReader(b))
	if err = errors.Join(err, out.Chmod(0o644), out.Close()); err == nil {
		err = os.Rename(out.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(out.Name()))
	}
	return nil
}

// ShardKeys gives the keys of a shard's samples, in their order.
func ShardKeys(path string, each func(key string)) error {
	s, err := openShard(path, dataset.Options{})
	if err != nil {
		return err
	}
	for k := range s.Len() {
		key, err := s.key(k)
		if err != nil {
			return errors.Join(err, s.Close())
		}
		each(key)
	}
	return s.Close()
}
