package torch

import (
	"archive/zip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/lfactor/lfactor/stages/checkpoint"
)

const (
	pickleMax  = 256 << 20 // bytes of a pickle; those of the largest models have some millions
	entriesMax = 1 << 20   // of an archive
)

// archive is a file of torch.save, or a part of one: a ZIP of a pickle and of storages, none of them compressed.
type archive struct {
	path    string
	r       io.ReaderAt
	at      int64 // of the archive in the file
	value   any   // of the pickle
	globals map[global]int
	entries map[string]place // storages by key
	sums    map[string]*summed
}

// summed is a storage whose bytes are held to the archive's CRC-32 when they are first read.
type summed struct {
	place
	path string
	want uint32
	once sync.Once
	err  error
}

// hold reads a storage whole, once.
func (s *summed) hold(r io.ReaderAt) error {
	s.once.Do(func() {
		h := crc32.NewIEEE()
		_, err := io.CopyBuffer(h, io.NewSectionReader(r, s.offset, s.bytes), make([]byte, min(s.bytes+1, 1<<20)))
		if got := h.Sum32(); err != nil || got != s.want && s.want != 0 { // 0 is of a writer that makes none
			s.err = &checkpoint.Error{File: s.path, Fault: checkpoint.Altered, Err: err, Try: "copy the file again",
				Why: fmt.Sprintf("at offset %d: the CRC-32 of %d bytes is %08x, the archive says %08x", s.offset,
					s.bytes, got, s.want)}
		}
	})
	return s.err
}

// place is bytes of the file.
type place struct{ offset, bytes int64 }

// openArchive reads the pickle of the archive in size bytes of r from at.
func openArchive(r io.ReaderAt, path string, at, size int64) (*archive, error) {
	bad := func(f checkpoint.Fault, format string, a ...any) error {
		return &checkpoint.Error{File: path, Fault: f, Why: fmt.Sprintf("at offset %d: ", at) +
			fmt.Sprintf(format, a...)}
	}
	z, err := zip.NewReader(io.NewSectionReader(r, at, size), size)
	if err != nil {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Malformed,
			Why: fmt.Sprintf("at offset %d: is no archive of torch.save", at), Err: err,
			Try: "a file of PyTorch before 1.6 is saved anew by torch.save(torch.load(OLD), NEW)"}
	}
	if len(z.File) > entriesMax {
		return nil, bad(checkpoint.Malformed, "%d entries, limit %d", len(z.File), entriesMax)
	}
	a := &archive{path: path, r: r, at: at, entries: map[string]place{}, sums: map[string]*summed{}}
	var pickle *place
	var sum uint32
	seen := map[string]bool{}
	for _, f := range z.File {
		_, name, ok := strings.Cut(f.Name, "/")
		offset, err := f.DataOffset()
		switch {
		case !ok || seen[f.Name]:
			return nil, bad(checkpoint.Malformed, "entry %q is there twice, or lies in no folder", f.Name)
		case err != nil:
			return nil, bad(checkpoint.Malformed, "entry %q: %v", f.Name, err)
		case f.Method != zip.Store || f.CompressedSize64 != f.UncompressedSize64:
			return nil, bad(checkpoint.Malformed, "entry %q is compressed, as torch.save compresses none", f.Name)
		case f.UncompressedSize64 > uint64(size) || offset > size-int64(f.UncompressedSize64):
			return nil, bad(checkpoint.Truncated, "entry %q ends behind the file", f.Name)
		}
		seen[f.Name] = true
		p := place{at + offset, int64(f.UncompressedSize64)}
		if key, is := strings.CutPrefix(name, "data/"); is {
			a.entries[key] = p
			a.sums[key] = &summed{place: p, path: path, want: f.CRC32}
		}
		switch name {
		case "data.pkl":
			if pickle != nil {
				return nil, bad(checkpoint.Malformed, "there are two pickles")
			}
			pickle, sum = &p, f.CRC32
		case "byteorder":
			text := make([]byte, min(p.bytes, 16))
			if _, err := r.ReadAt(text, p.offset); err != nil || string(text) != "little" {
				return nil, bad(checkpoint.Malformed, "its numbers are of byte order %q, little is read", text)
			}
		}
	}
	if pickle == nil {
		return nil, bad(checkpoint.Malformed, "there is no data.pkl")
	}
	return a, a.readPickle(*pickle, sum)
}

// readPickle reads the pickle, whose CRC-32 the archive says.
func (a *archive) readPickle(p place, sum uint32) (err error) {
	b, err := readAll(a.r, a.path, p)
	if err != nil {
		return err
	}
	if got := crc32.ChecksumIEEE(b); got != sum && sum != 0 {
		return &checkpoint.Error{File: a.path, Fault: checkpoint.Altered,
			Why: fmt.Sprintf("at offset %d: the pickle's CRC-32 is %08x, the archive says %08x", p.offset, got, sum),
			Try: "copy the file again"}
	}
	a.value, a.globals, _, err = unpickle(b)
	return inFile(err, a.path, p.offset)
}

// readAll reads a pickle.
func readAll(r io.ReaderAt, path string, p place) ([]byte, error) {
	if p.bytes > pickleMax {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Malformed,
			Why: fmt.Sprintf("at offset %d: a pickle of %d bytes, limit %d", p.offset, p.bytes, pickleMax)}
	}
	b := make([]byte, p.bytes)
	if _, err := r.ReadAt(b, p.offset); err != nil {
		return nil, &checkpoint.Error{File: path, Fault: checkpoint.Truncated,
			Why: fmt.Sprintf("at offset %d", p.offset), Err: err}
	}
	return b, nil
}

// inFile puts a pickle's fault into its file.
func inFile(err error, path string, offset int64) error {
	var f *fault
	if errors.As(err, &f) {
		return &checkpoint.Error{File: path, Fault: checkpoint.Malformed,
			Why: fmt.Sprintf("at offset %d: byte %d of the pickle: %s", offset+int64(f.at), f.at, f.why)}
	}
	return err
}

// harmless are the globals that are read as what they stand for, beside types and storages.
var harmless = map[global]bool{
	orderedDict:                                                  true,
	{"torch._utils", "_rebuild_tensor_v2"}:                       true,
	{"torch._utils", "_rebuild_tensor_v3"}:                       true,
	{"torch._utils", "_rebuild_parameter"}:                       true,
	{"torch.storage", "UntypedStorage"}:                          true,
	{"torch", "Size"}:                                            true,
	{"torch.serialization", "_get_layout"}:                       true,
	{dcpMetadata, "Metadata"}:                                    true,
	{dcpMetadata, "TensorStorageMetadata"}:                       true,
	{dcpMetadata, "BytesStorageMetadata"}:                        true,
	{dcpMetadata, "TensorProperties"}:                            true,
	{dcpMetadata, "ChunkStorageMetadata"}:                        true,
	{dcpMetadata, "MetadataIndex"}:                               true,
	{dcpMetadata, "StorageMeta"}:                                 true,
	{dcpMetadata, "_MEM_FORMAT_ENCODING"}:                        true,
	{dcpFiles, "_StorageInfo"}:                                   true,
	{dcpFiles, "_StoragePrefix"}:                                 true,
	{"torch.distributed.checkpoint.planner", "SavePlan"}:         true,
	{"torch.distributed.checkpoint.planner", "WriteItem"}:        true,
	{"torch.distributed.checkpoint.planner", "WriteItemType"}:    true,
	{"torch.distributed.checkpoint.planner", "TensorWriteData"}:  true,
	{"torch.distributed.checkpoint.planner", "BytesIOWriteData"}: true,
	{"pathlib", "PosixPath"}:                                     true,
	{"pathlib", "PurePosixPath"}:                                 true,
}

// opened opens a file of torch.save that names what is known alone.
func opened(path string, known func(g global) bool) (*archive, *os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	var a *archive
	info, err := f.Stat()
	if err == nil {
		a, err = openArchive(f, path, 0, info.Size())
	}
	if err == nil {
		err = refuse(a.globals, path, known)
	}
	if err != nil {
		_ = f.Close() // it was only read
		return nil, nil, err
	}
	return a, f, nil
}

// refuse reports the globals that are not known: the pickle would call them.
func refuse(globals map[global]int, path string, known func(global) bool) error {
	names := slices.SortedFunc(maps.Keys(globals), func(a, b global) int { return globals[a] - globals[b] })
	for _, g := range names {
		_, isType := types[g]
		_, isStorage := storages[g]
		if !harmless[g] && !isType && !isStorage && !known(g) {
			return &checkpoint.Error{File: path, Fault: checkpoint.Unsafe,
				Why: fmt.Sprintf("byte %d of its pickle names %s, which loading it in Python would call: "+
					"it is not run here, and only tensors, dictionaries and types are read", globals[g], g)}
		}
	}
	return nil
}
