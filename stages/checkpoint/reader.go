package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Reader reads one of lfactor's own checkpoints, in any cut: what is asked for is put together from
// whichever pieces hold it. Its methods may be called from several goroutines at once.
// In the words of the field: resharding.
type Reader struct {
	path    string
	m       *manifest
	tensors map[[2]string]manifestTensor // by kind and name
	pieces  map[string]map[string]Piece  // by file and key
	fetch   func(Shard) error            // brings a shard that is not here; nil where all have to be
	mu      sync.Mutex
	files   map[string]*File // that are open
	packed  map[string]*packedParam
	average string // kind that is read in the place of parameters, "" for none
}

// Open opens a step directory, or the latest one of a checkpoint root. The manifest is checked against its
// hash, the shards against the manifest by size and header; Verify checks their contents.
func Open(dir string) (*Reader, error) {
	if _, err := os.Stat(filepath.Join(dir, ManifestName)); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, latestName)); err == nil {
			return openLatest(dir)
		}
	}
	r, err := newReader(dir)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, s := range r.m.Files {
		_, err := r.open(s)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// OpenPart opens a step directory that may lack shards. A shard is looked at when something of it is read:
// fetch is to bring the ones that are missing, or are not what the manifest says, to the directory.
func OpenPart(dir string, fetch func(Shard) error) (*Reader, error) {
	r, err := newReader(dir)
	if err == nil {
		r.fetch = fetch
	}
	return r, err
}

// newReader reads the manifest of a saved step. The files are opened when something of them is
// read. The root keeps names in the manifest from leading out of the directory.
func newReader(dir string) (*Reader, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	m, err := readManifest(root)
	if err != nil {
		return nil, err
	}
	r := &Reader{path: dir, m: m, files: map[string]*File{}, tensors: map[[2]string]manifestTensor{},
		pieces: map[string]map[string]Piece{}, packed: map[string]*packedParam{}}
	for _, s := range m.Files {
		r.pieces[s.File] = map[string]Piece{}
	}
	for _, t := range m.Tensors {
		r.tensors[[2]string{t.Kind, t.Name}] = t
		p, err := packedOf(t)
		if err != nil {
			return nil, &Error{File: filepath.Join(dir, ManifestName), Tensor: t.Name, Fault: Malformed,
				Why: "manifest", Err: err}
		}
		if p != nil {
			r.packed[t.Name] = p
		}
		for _, p := range t.Pieces {
			piece := t.piece(p)
			r.pieces[p.File][piece.key()] = piece
		}
	}
	return r, nil
}

// readManifest reads manifest.json of a step directory and holds it to its hash.
func readManifest(root *os.Root) (*manifest, error) {
	path := filepath.Join(root.Name(), ManifestName)
	var parts [2][]byte
	for i, name := range []string{ManifestName, sumName} {
		limit := int64(manifestBytesMax)
		if name == sumName {
			limit = 1 << 10
		}
		text, err := ReadSmall(root, name, limit)
		if errors.Is(err, os.ErrNotExist) {
			return nil, &Error{File: filepath.Join(root.Name(), name), Fault: Missing,
				Why: "a checkpoint has this file; a save that was interrupted may not", Try: "take an older step"}
		}
		if err != nil {
			return nil, err
		}
		parts[i] = text
	}
	if !bytes.Equal(sumLine(parts[0]), parts[1]) {
		return nil, &Error{File: path, Fault: Altered, Why: "its hash is not the one in " + sumName,
			Try: "take an older step"}
	}
	m, err := parseManifest(parts[0])
	if err != nil {
		return nil, &Error{File: path, Fault: Malformed, Why: "manifest", Err: err}
	}
	return m, nil
}

// file is a shard, opened when it is used first.
func (r *Reader) file(name string) (*File, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.files[name]; f != nil {
		return f, nil
	}
	s := r.m.Files[slices.IndexFunc(r.m.Files, func(s Shard) bool { return s.File == name })]
	if r.fetch != nil {
		if _, sum, err := hashFile(filepath.Join(r.path, name)); err != nil || sum != s.SHA256 {
			if err := r.fetch(s); err != nil {
				return nil, err
			}
		}
	}
	return r.open(s)
}

// Complete brings all shards that are missing or damaged, of a step that OpenPart has opened; the result is how many.
func (r *Reader) Complete() (n int, err error) {
	bring := r.fetch
	r.fetch = func(s Shard) error { n++; return bring(s) }
	defer func() { r.fetch = bring }()
	var errs []error
	for _, s := range r.m.Files {
		_, err := r.file(s.File)
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// open opens a shard and compares it with what the manifest says is in it.
func (r *Reader) open(s Shard) (*File, error) {
	root, err := os.OpenRoot(r.path)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	path, pieces := filepath.Join(r.path, s.File), r.pieces[s.File]
	info, err := root.Stat(s.File)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, &Error{File: path, Fault: Missing, Why: "the manifest lists it" + r.elsewhere(s.File),
			Try: "take an older step"}
	case err == nil && info.Size() < s.Bytes:
		return nil, &Error{File: path, Fault: Truncated, Tensor: firstKey(pieces),
			Why: fmt.Sprintf("%d bytes, the manifest says %d", info.Size(), s.Bytes), Try: "take an older step"}
	case err == nil && info.Size() != s.Bytes:
		return nil, &Error{File: path, Fault: Altered, Why: fmt.Sprintf("%d bytes, the manifest says %d",
			info.Size(), s.Bytes), Try: "take an older step"}
	}
	f, err := openIn(root, s.File)
	if err != nil {
		return nil, err
	}
	r.files[s.File] = f
	var want []Info
	for _, key := range SortedKeys(pieces) {
		want = append(want, Info{Name: key, DType: pieces[key].DType, Shape: pieces[key].storedShape()})
	}
	return f, Match(r.path, want, f.Tensors())
}

// elsewhere names the hosts that have a shard, where the run kept its checkpoints on storage of single hosts.
func (r *Reader) elsewhere(file string) string {
	var places map[string][]string
	if raw, ok := r.m.Sections[PlacesSection]; !ok || json.Unmarshal(raw, &places) != nil || len(places[file]) == 0 {
		return ""
	}
	return ", and it was written to " + strings.Join(places[file], " and ")
}

// PlacesSection is the section of the manifest that names, by shard, the hosts that have it: present where
// hosts of a run share no storage.
const PlacesSection = "places"

// firstKey is the first key in sorted order, or nothing if there is none; one fixed choice gives one fixed message.
func firstKey(pieces map[string]Piece) string {
	if len(pieces) == 0 {
		return ""
	}
	return SortedKeys(pieces)[0]
}

// Path is the step's directory.
func (r *Reader) Path() string { return r.path }

// Step is the number of updates the saved state has had.
func (r *Reader) Step() int64 { return r.m.Step }

// Kinds returns the kinds of tensors present, sorted.
func (r *Reader) Kinds() []string {
	seen := map[string]bool{}
	for _, t := range r.m.Tensors {
		seen[t.Kind] = true
	}
	return SortedKeys(seen)
}

// Section decodes a named JSON value of the manifest into v.
func (r *Reader) Section(key string, v any) error {
	raw, ok := r.m.Sections[key]
	path := filepath.Join(r.path, ManifestName)
	if !ok {
		return &Error{File: path, Fault: Missing, Why: fmt.Sprintf("no section %q; there are %s", key,
			strings.Join(SortedKeys(r.m.Sections), ", "))}
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return &Error{File: path, Fault: Malformed, Why: "section " + key, Err: err}
	}
	return nil
}

// Kind returns the logical tensors of one kind as a Source. Closing it leaves the Reader open.
func (r *Reader) Kind(kind string) Source { return kindView{r, kind} }

// Average lets all who read parameters have another kind of them instead, an average of weights over steps:
// Param gives it, Master has nothing. Parameters that have none, as those that did not learn, stay.
func (r *Reader) Average(kind string) error {
	if !slices.Contains(r.Kinds(), kind) {
		return &Error{File: filepath.Join(r.path, ManifestName), Fault: Missing,
			Why: "the run kept no average of its weights; optimizer.ema=0.9999 keeps one"}
	}
	r.average = kind
	return nil
}

// stored is the kind under which a parameter's kind is found: Average puts one in another's place, and then
// there are no master copies of it.
func (r *Reader) stored(kind, name string) string {
	if _, ok := r.tensors[[2]string{r.average, name}]; !ok || r.average == "" {
		return kind
	}
	switch kind {
	case Param:
		return r.average
	case Master:
		return ""
	}
	return kind
}

// kindView shows the tensors of one kind, as parameters or master copies, as a source of its own.
type kindView struct {
	r    *Reader
	kind string
}

func (v kindView) Close() error { return nil }

// Tensors lists the tensors of the kind with their sizes as a whole, however they are cut into pieces.
func (v kindView) Tensors() []Info {
	var out []Info
	for _, t := range v.r.m.Tensors {
		if t.Kind == v.r.stored(v.kind, t.Name) {
			out = append(out, t.info())
		}
	}
	if v.kind != Param || len(v.r.packed) == 0 {
		return out
	}
	for _, name := range SortedKeys(v.r.packed) {
		out = append(out, v.r.packed[name].info())
	}
	slices.SortFunc(out, func(a, b Info) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (v kindView) ReadRanges(name string, ranges [][2]int, dst []byte) error {
	return v.r.ReadLogical(name, v.kind, ranges, dst)
}

// info is a tensor as a whole.
func (t manifestTensor) info() Info {
	n, _ := ByteSize(t.DType, t.Shape) // checked when the manifest was read
	return Info{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Shape), Bytes: n}
}

// Info tells of one tensor of a kind what Kind(kind).Tensors() does.
func (r *Reader) Info(name, kind string) (Info, bool) {
	if t, ok := r.tensors[[2]string{r.stored(kind, name), name}]; ok {
		return t.info(), true
	}
	if p := r.packed[name]; p != nil && kind == Param {
		return p.info(), true
	}
	return Info{}, false
}

// ReadLogical copies the box ranges of a logical tensor to dst, row-major, whichever pieces hold it.
// len(dst) must be the box's bytes.
func (r *Reader) ReadLogical(name, kind string, ranges [][2]int, dst []byte) error {
	t, ok := r.tensors[[2]string{r.stored(kind, name), name}]
	packed := r.packed[name]
	shown := !ok && kind == Param && packed != nil
	if info, known := r.Info(name, kind); known {
		t.DType, t.Shape = info.DType, info.Shape
	} else {
		return &Error{File: filepath.Join(r.path, ManifestName), Tensor: name, Fault: Missing,
			Why: "the checkpoint has no " + kind + " of it"}
	}
	n, err := BoxBytes(t.DType, t.Shape, ranges)
	if err == nil && n != int64(len(dst)) {
		err = fmt.Errorf("ranges %v take %d bytes, the buffer has %d", ranges, n, len(dst))
	}
	if err != nil {
		return fmt.Errorf("%s: %s %s: %w", r.path, kind, name, err)
	}
	if shown {
		return packed.read(r, ranges, dst)
	}
	for _, p := range t.Pieces {
		if err := r.readPiece(p.File, t.piece(p), ranges, dst); err != nil {
			return err
		}
	}
	return nil
}

// readPiece copies what a piece of a file and the ranges have in common.
func (r *Reader) readPiece(file string, p Piece, ranges [][2]int, dst []byte) error {
	common, ok := intersect(p.box(), ranges)
	if !ok {
		return nil
	}
	f, err := r.file(file)
	if err != nil {
		return err
	}
	t := f.ByName[p.key()]
	flat, elem := p.flat(), int64(p.DType.Bits()/8)
	w := &windowReader{r: f.r, end: t.Offset + t.Bytes}
	last := int64(-1)
	err = runs(common, p.box(), ranges, func(c run) error {
		stride := c.n
		if last >= 0 {
			stride = c.src - last
		}
		last = c.src
		lo, hi := max(c.src, flat[0]), min(c.src+c.n, flat[1])
		if lo >= hi {
			return nil
		}
		at := c.dst + lo - c.src
		return w.read(dst[at*elem:(at+hi-lo)*elem], t.Offset+(lo-flat[0])*elem, stride*elem)
	})
	return f.wrap(p.Kind+" "+p.Name, err)
}

// Verify reads every shard and compares its hash with the manifest's, and reports files the manifest does
// not list. Shards that OpenPart need not have are held to their hashes when they are read.
func (r *Reader) Verify() error {
	var errs []error
	for _, s := range r.m.Files {
		if r.fetch != nil {
			continue
		}
		switch _, sum, err := hashFile(filepath.Join(r.path, s.File)); {
		case err != nil:
			errs = append(errs, err)
		case sum != s.SHA256:
			errs = append(errs, &Error{File: filepath.Join(r.path, s.File), Fault: Altered,
				Why: "its hash is not the manifest's", Try: "take an older step"})
		}
	}
	entries, err := os.ReadDir(r.path)
	errs = append(errs, err)
	for _, e := range entries {
		if name := e.Name(); r.pieces[name] == nil && name != ManifestName && name != sumName {
			errs = append(errs, &Error{File: filepath.Join(r.path, name), Fault: Extra,
				Why: "the manifest does not list it", Try: "remove it"})
		}
	}
	return errors.Join(errs...)
}

// sumLine is the content of manifest.sha256.
func sumLine(manifest []byte) []byte {
	sum := sha256.Sum256(manifest)
	return append(hex.AppendEncode(nil, sum[:]), '\n')
}

// hashFile returns a file's size and SHA-256, in hex.
func hashFile(path string) (int64, string, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return n, hex.EncodeToString(h.Sum(nil)), err
}

// Close releases the files.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, name := range SortedKeys(r.files) {
		errs = append(errs, r.files[name].Close())
	}
	return errors.Join(errs...)
}
